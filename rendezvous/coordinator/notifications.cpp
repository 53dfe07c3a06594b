#include "rendezvous/coordinator/notifications.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>

#include "common/text/words.hpp"

namespace ddprun::coordinator {
namespace {

/// The same signal from several nodes within this time is one notification: schedulers send it to every node of a job.
/// An agent compares likewise.
constexpr std::chrono::seconds kSameNotification{1};
/// The number of notifications that are kept to be repeated.
constexpr std::size_t kMaxNotifications = 256;

/// Returns whether a message that was sent then may have been lost with a connection whose node may still reconnect
/// with its workers. They end when the daemon has confirmed nothing for `hold`, or lost_after later if the node stood
/// still.
bool may_be_lost(const State& state, const Notification& sent) {
    return state.now - sent.at <= state.config.hold + state.config.lost_after;
}

/// Returns the notification that `id` forwards, too; null: it is a new one, or was kept no longer. Two signals to one
/// node are two.
Notification* known_notification(State& state, const NodeId& id, const Notify& message) {
    const auto known = std::ranges::find_if(state.group.notifications, [&](const Notification& sent) {
        const bool recent = message.known || state.now - sent.at < kSameNotification;
        return sent.message.signal == message.signal && recent && !sent.origins.contains(id);
    });
    return known == state.group.notifications.end() ? nullptr : &*known;
}

const Notification& add_notification(State& state, const NodeId& id, int signal) {
    auto& kept = state.group.notifications;
    std::erase_if(kept, [&](const Notification& sent) { return !may_be_lost(state, sent); });
    if (kept.size() == kMaxNotifications) kept.erase(kept.begin());
    const Notify message{state.group.generation, signal, ++state.last_notification};
    return kept.emplace_back(Notification{message, state.now, {id}});
}

}  // namespace

void notify(Transition& t, const NodeId& id, const Notify& message) {
    State& state = t.state;
    const std::string& host = state.nodes.at(id).join.host;
    if (message.signal != SIGUSR1 && message.signal != SIGUSR2)
        return t.say(
            fmt::format("ignored: {} forwards signal {}, which is not for workers", name_node(host), message.signal));
    const std::string signal = signal_name(message.signal);
    const bool from_member = state.group.members.contains(id) && message.generation == state.group.generation;
    if (state.phase != Phase::kRunning || !from_member)
        return t.say(fmt::format("ignored: {} from {}, which is not in the running group", signal, name_node(host)));
    Notification* const known = known_notification(state, id, message);
    if (known != nullptr) known->origins.insert(id);
    if (known != nullptr || message.known) return t.say(fmt::format("{} got {} as well", name_node(host), signal));
    t.say(fmt::format("{} forwards {} to the workers of all nodes", name_node(host), signal));
    const Notify forwarded = add_notification(state, id, message.signal).message;
    for (const auto& [other, member] : state.group.members) {
        const auto node = state.nodes.find(other);
        if (other == id || node == state.nodes.end() || node->second.busy != message.generation) continue;
        if (node->second.link == Link::kConnected) t.send(other, forwarded);  // else when it reconnects
    }
}

void repeat_notifications(Transition& t, const NodeId& id) {
    for (const Notification& sent : t.state.group.notifications) {
        if (!may_be_lost(t.state, sent) || sent.origins.contains(id)) continue;
        Notify message = sent.message;
        message.ago = std::chrono::duration_cast<std::chrono::milliseconds>(t.state.now - sent.at);
        t.send(id, message);
    }
}

}  // namespace ddprun::coordinator
