#include "worker_lib/src/native/net/watch.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <span>
#include <utility>

#include "worker_lib/src/native/net/sockets.hpp"
#include "worker_lib/src/util/error.hpp"
#include "worker_lib/src/util/signal_masked_thread.hpp"

namespace ddp::detail {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSendTimeout{250};  ///< for one alarm, which fits into the socket's buffer

/// A leader that died without a report may have completed the operation that is running here. Then that operation
/// completes by itself within this time.
constexpr milliseconds kGracePeriod{300};

}  // namespace

Watch::Watch(Node& node, std::int64_t generation, std::map<int, Link> peers)
    : node_(node),
      generation_(generation),
      local_missing_(static_cast<std::size_t>(node.ranks.size())),
      interrupt_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!interrupt_) throw_errno("cannot create an eventfd", errno);
    for (auto& [rank, link] : peers) {
        Peer& peer = peers_.emplace_back();
        peer.rank = rank;
        peer.link = std::move(link);
    }
    thread_ = start_signal_masked_thread("ddp-watch", [this] { run(); });
}

Watch::~Watch() { stop(); }

void Watch::stop() {
    stopping_ = true;
    (void)::eventfd_write(interrupt_.get(), 1);  // fails only when it is set already
    if (thread_.joinable()) thread_.join();
}

void Watch::report_end(const std::optional<Failure>& failure, const Absence& departure) {
    if (failure && node_.failure.valid_through() < reported_after_)
        report_failure(*failure, node_.failure.valid_through());
    report_departure(departure);
    std::vector<int> sockets;
    for (const Peer& peer : peers_) {
        if (!peer.link.socket) continue;
        ::shutdown(peer.link.socket.get(), SHUT_WR);
        sockets.push_back(peer.link.socket.get());
    }
    drain(std::move(sockets), ddprun::Clock::now() + kSendTimeout);
}

void Watch::run() {
    while (wait()) {
        for (Peer& peer : peers_) receive_from(peer);
        look_at_own_node();
        end_waits_for_missing();
        report_own_failure();
    }
}

/// Returns when a peer sends, a neighbour ends, or it is time to look at the node again. False: stop.
bool Watch::wait() {
    std::vector<pollfd> waiting{{.fd = interrupt_.get(), .events = POLLIN, .revents = 0}};
    for (const Peer& peer : peers_) waiting.push_back({.fd = peer.link.socket.get(), .events = POLLIN, .revents = 0});
    for (int i = 0; i < node_.ranks.size(); ++i) {
        if (local_missing_[static_cast<std::size_t>(i)]) continue;
        waiting.push_back(
            {.fd = node_.ranks.local(i).process.get(), .events = POLLIN, .revents = 0});  // none for the own rank
    }
    const int timeout = static_cast<int>(std::chrono::duration_cast<milliseconds>(Waiter::kNap).count());
    (void)::poll(waiting.data(), waiting.size(), timeout);  // interrupted or out of memory: it looks earlier
    return !stopping_;
}

void Watch::receive_from(Peer& peer) {
    ddprun::UniqueFd none;
    while (peer.link.socket) {
        const auto bytes = std::as_writable_bytes(std::span(&peer.incoming, 1)).subspan(peer.received);
        const ssize_t received = receive_some(peer.link.socket.get(), bytes, none);
        if (received < 0 && errno == EAGAIN) return;
        if (received <= 0) return lose(peer, received < 0 ? errno : 0);
        peer.received += static_cast<std::size_t>(received);
        if (peer.received == sizeof(Alarm)) take(peer);
    }
}

void Watch::take(Peer& peer) {
    const Alarm& alarm = peer.incoming;
    peer.received = 0;
    if (alarm.magic != Alarm::kMagic || alarm.generation != generation_) return lose(peer);
    const Failure why = reported_by(peer.link.name, read_note(alarm.note, node_.ranks.group_size()));
    if (alarm.kind == Alarm::Kind::kFailed) return node_.failure.poison(why, alarm.after);
    add_missing({alarm.after, why, alarm.how});
    if (why.culprits == std::vector<int>{peer.rank}) peer.departed = true;
}

void Watch::add_missing(const Absence& absence) {
    missing_.push_back({absence, ddprun::Clock::now()});
    const ddprun::Lock lock(absences_mutex_);
    for (const int rank : absence.failure.culprits) absences_.emplace(rank, absence);
}

std::optional<Absence> Watch::departure_of(int rank) const {
    const ddprun::Lock lock(absences_mutex_);
    const auto found = absences_.find(rank);
    return found == absences_.end() ? std::nullopt : std::optional(found->second);
}

/// Handles the end of a peer's connection. Without a reported departure the peer is lost, after an unknown operation.
/// errno_value   the error with which the connection ended; 0: the peer closed it
void Watch::lose(Peer& peer, int errno_value) {
    peer.link.socket.reset();
    if (peer.departed) return;
    // Before the failure that follows from it.
    if (is_unreachable(errno_value)) unreachable_.store(peer.link.global_rank, std::memory_order_relaxed);
    const Failure why = is_unreachable(errno_value)
                            ? unreachable_failure(node_.ranks.self(), peer.rank, peer.link.name)
                            : departure_failure(peer.rank, peer.link.name, Departure::kLost, std::nullopt);
    add_missing({std::nullopt, why, Departure::kLost});
}

void Watch::look_at_own_node() {
    for (int i = 0; i < node_.ranks.size(); ++i) {
        if (i == node_.ranks.own_index() || local_missing_[static_cast<std::size_t>(i)]) continue;
        const auto absence = node_.progress.absence(i);
        if (!absence) continue;
        // A rank that leaves because of a failure has poisoned the node before. Then report_own_failure() reports that,
        // unless the rank ended before it had published which operations the failure ends.
        if (node_.failure.valid_through() < reported_after_) return;
        local_missing_[static_cast<std::size_t>(i)] = true;
        report_departure(*absence);
        add_missing(*absence);
    }
}

/// Poisons the node for operations that a missing rank will not join, even if the group has failed already, because a
/// rank may wait in an operation that the failure does not end.
void Watch::end_waits_for_missing() {
    for (const Missing& missing : missing_) {
        const auto& after = missing.absence.after;
        if (after.value_or(0) >= node_.failure.valid_through()) continue;
        const bool unreachable = after
                                     ? node_.progress.any_beyond(*after)
                                     : node_.progress.any_busy() && ddprun::Clock::now() - missing.since > kGracePeriod;
        if (unreachable) node_.failure.poison(missing.absence.failure, after.value_or(0));
    }
}

void Watch::report_own_failure() {
    const auto failure = node_.failure.for_other_nodes();
    const std::uint64_t after = node_.failure.valid_through();
    if (!failure || after >= reported_after_) return;
    report_failure(*failure, after);
    reported_after_ = after;
}

void Watch::report_failure(const Failure& failure, std::uint64_t after) {
    report({.kind = Alarm::Kind::kFailed, .after = after}, failure);
}

void Watch::report_departure(const Absence& absence) {
    report({.kind = Alarm::Kind::kDeparted, .after = absence.after.value_or(0), .how = absence.how}, absence.failure);
}

void Watch::report(Alarm alarm, const Failure& why) {
    alarm.generation = generation_;
    alarm.note = make_note(why);
    for (Peer& peer : peers_) {
        if (!peer.link.socket) continue;
        const auto bytes = std::as_bytes(std::span(&alarm, 1));
        // If it is not delivered, that peer's node learns it when this connection ends, or by its own deadline.
        if (!send_all(peer.link.socket.get(), bytes, -1, ddprun::Clock::now() + kSendTimeout)) peer.link.socket.reset();
    }
}

}  // namespace ddp::detail
