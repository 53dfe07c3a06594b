#include "worker_lib/src/native/watch.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <span>
#include <utility>

#include "worker_lib/src/native/quiet_thread.hpp"
#include "worker_lib/src/native/sockets.hpp"
#include "worker_lib/src/native/system_error.hpp"

namespace ddp::detail {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kOneAlarm{250};  ///< to one peer: it fits into the socket's buffer

/// A leader that died without a word may have done the operation that is under way here, in which case that ends by
/// itself within this time.
constexpr milliseconds kBenefitOfDoubt{300};

}  // namespace

Watch::Watch(Node& node, std::int64_t generation, std::map<int, Link> peers)
    : node_(node),
      generation_(generation),
      local_gone_(static_cast<std::size_t>(node.size())),
      interrupt_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!interrupt_) throw_errno("cannot create an eventfd", errno);
    for (auto& [rank, link] : peers) {
        Peer& peer = peers_.emplace_back();
        peer.rank = rank;
        peer.link = std::move(link);
    }
    thread_ = start_quiet_thread("ddp-watch", [this] { run(); });
}

Watch::~Watch() { stop(); }

void Watch::stop() {
    stopping_ = true;
    (void)::eventfd_write(interrupt_.get(), 1);  // fails only when it is set already
    if (thread_.joinable()) thread_.join();
}

void Watch::say_goodbye(const std::optional<Error>& failure, const Absence& departure) {
    if (failure && node_.spoiled_after() < told_after_) tell_failure(*failure, node_.spoiled_after());
    tell_departure(departure);
    std::vector<int> sockets;
    for (const Peer& peer : peers_) {
        if (!peer.link.socket) continue;
        ::shutdown(peer.link.socket.get(), SHUT_WR);
        sockets.push_back(peer.link.socket.get());
    }
    let_go(std::move(sockets), ddprun::Clock::now() + kOneAlarm);
}

void Watch::run() {
    while (wait()) {
        for (Peer& peer : peers_) listen_to(peer);
        look_at_own_node();
        end_hopeless_waits();
        pass_on_failure();
    }
}

/// Until a peer speaks, a neighbour ends or it is time to look at the node again. False: stop.
bool Watch::wait() {
    std::vector<pollfd> waiting{{.fd = interrupt_.get(), .events = POLLIN, .revents = 0}};
    for (const Peer& peer : peers_) waiting.push_back({.fd = peer.link.socket.get(), .events = POLLIN, .revents = 0});
    for (int i = 0; i < node_.size(); ++i) {
        if (local_gone_[static_cast<std::size_t>(i)]) continue;
        waiting.push_back({.fd = node_.local(i).process.get(), .events = POLLIN, .revents = 0});  // the own one: none
    }
    const int patience = static_cast<int>(std::chrono::duration_cast<milliseconds>(Waiter::kNap).count());
    (void)::poll(waiting.data(), waiting.size(), patience);  // interrupted or out of memory: a nap cut short
    return !stopping_;
}

void Watch::listen_to(Peer& peer) {
    ddprun::UniqueFd none;
    while (peer.link.socket) {
        const auto bytes = std::as_writable_bytes(std::span(&peer.incoming, 1)).subspan(peer.received);
        const ssize_t received = receive_some(peer.link.socket.get(), bytes, none);
        if (received < 0 && errno == EAGAIN) return;
        if (received <= 0) return lose(peer);
        peer.received += static_cast<std::size_t>(received);
        if (peer.received == sizeof(Alarm)) take(peer);
    }
}

void Watch::take(Peer& peer) {
    const Alarm& alarm = peer.incoming;
    peer.received = 0;
    if (alarm.magic != Alarm::kMagic || alarm.generation != generation_) return lose(peer);
    const Error why = read_note(alarm.note);
    if (alarm.kind == Alarm::Kind::kFailed) return node_.relay(why, alarm.after);
    miss({alarm.after, why, alarm.how});
    if (why.culprits() == std::vector<int>{peer.rank}) peer.departed = true;
}

void Watch::miss(const Absence& absence) {
    missing_.push_back({absence, ddprun::Clock::now()});
    const std::lock_guard lock(gone_mutex_);
    for (const int rank : absence.error.culprits()) gone_.emplace(rank, absence);
}

std::optional<Absence> Watch::departure_of(int rank) const {
    const std::lock_guard lock(gone_mutex_);
    const auto found = gone_.find(rank);
    return found == gone_.end() ? std::nullopt : std::optional(found->second);
}

/// Its connection has ended. Without a departure it is lost, nobody knows after which operation.
void Watch::lose(Peer& peer) {
    peer.link.socket.reset();
    if (peer.departed) return;
    const Error why = departure_error(peer.rank, peer.link.name, Departure::kLost, std::nullopt);
    miss({std::nullopt, why, Departure::kLost});
}

void Watch::look_at_own_node() {
    for (int i = 0; i < node_.size(); ++i) {
        if (i == node_.own_index() || local_gone_[static_cast<std::size_t>(i)]) continue;
        const auto absence = node_.absence(i);
        if (!absence) continue;
        // Whoever leaves because of a failure has told the node of it before: then that is the news. Unless it ended
        // before it had said which operations that spoils.
        if (node_.spoiled_after() < told_after_) return;
        local_gone_[static_cast<std::size_t>(i)] = true;
        tell_departure(*absence);
        miss(*absence);
    }
}

/// Also when the group has failed: a rank may wait in an operation that this has left alone.
void Watch::end_hopeless_waits() {
    for (const Missing& missing : missing_) {
        const auto& after = missing.absence.after;
        if (after.value_or(0) >= node_.spoiled_after()) continue;
        const bool hopeless = after ? node_.any_beyond(*after)
                                    : node_.any_busy() && ddprun::Clock::now() - missing.since > kBenefitOfDoubt;
        if (hopeless) node_.relay(missing.absence.error, after.value_or(0));
    }
}

void Watch::pass_on_failure() {
    const auto failure = node_.failure_for_others();
    const std::uint64_t after = node_.spoiled_after();
    if (!failure || after >= told_after_) return;
    tell_failure(*failure, after);
    told_after_ = after;
}

void Watch::tell_failure(const Error& failure, std::uint64_t after) {
    tell({.kind = Alarm::Kind::kFailed, .after = after}, failure);
}

void Watch::tell_departure(const Absence& absence) {
    tell({.kind = Alarm::Kind::kDeparted, .after = absence.after.value_or(0), .how = absence.how}, absence.error);
}

void Watch::tell(Alarm alarm, const Error& why) {
    alarm.generation = generation_;
    alarm.note = make_note(why, Wording::kComplete);
    for (Peer& peer : peers_) {
        if (!peer.link.socket) continue;
        const auto bytes = std::as_bytes(std::span(&alarm, 1));
        // Not delivered: that peer's node learns it from our connection's end, or by its own deadline.
        if (!send_all(peer.link.socket.get(), bytes, -1, ddprun::Clock::now() + kOneAlarm)) peer.link.socket.reset();
    }
}

}  // namespace ddp::detail
