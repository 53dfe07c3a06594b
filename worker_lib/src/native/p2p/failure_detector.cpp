#include "worker_lib/src/native/p2p/failure_detector.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/text/list.hpp"
#include "worker_lib/src/native/protocol/deadlines.hpp"

namespace ddp::detail::p2p {

namespace {

/// Passes that receive the messages of a lost peer before anything else is checked: 100 MiB at most.
constexpr int kMaxDrainPasses = 100;
/// Time before a deadline from which on ranks of other nodes are asked whether they wait themselves. It is enough for
/// many answers, so a rank without any is silent.
constexpr auto kAskBefore = 2 * kSilence;
constexpr std::chrono::milliseconds kLookAtHosts{250};  ///< interval

ddprun::TimePoint begin_of(const P2pWork& work) { return work.batch.deadline - work.batch.timeout; }

}  // namespace

std::optional<P2pEnd> FailureDetector::find_failure() {
    const auto now = ddprun::Clock::now();
    note_pause(now);
    look_at_neighbours(now);
    note_unreachable(now);
    ask_remotes(now);
    for (Peer* one : peers_.all()) one->matching().record_unexpected(now);
    if (const auto poison = setup_.node.failure.for_this_rank()) return P2pEnd{.why = *poison};
    auto found = find_lost(now);
    return found ? std::move(found) : find_overdue(now);
}

/// Adapts to a pause of this rank, in which its peers may not have run either: silence during it shows nothing.
void FailureDetector::note_pause(ddprun::TimePoint now) {
    const bool rested = std::exchange(is_resting_, false);
    const auto& works = works_.in_flight();
    if (rested) {  // works have no queue: if the first look at one is late, this rank did not run, or did not look
        const auto called = works.empty() ? now : begin_of(*works.begin()->second);
        pauses_.begin(called, called);
    }
    const auto missed = pauses_.look(now);
    if (!rested && missed == ddprun::Duration::zero()) return;
    const auto postpone = [&](Listening& listening) {
        if (rested) listening.since = std::max<ddprun::TimePoint>(listening.since, now - kSilence / 2);
        listening.since = std::min(listening.since + missed, now);
    };
    for (Neighbour& neighbour : peers_.neighbours()) postpone(neighbour.listening);
    for (RemotePeer& remote : peers_.remotes()) postpone(remote.listening);
}

/// Returns the time, `extra` after the deadline of a work, at which this rank gives it up.
ddprun::TimePoint FailureDetector::limit(const P2pWork& work, ddprun::Duration extra) const {
    return pauses_.limit(work.batch.deadline, extra, begin_of(work));
}

void FailureDetector::look_at_neighbours(ddprun::TimePoint now) {
    for (Neighbour& neighbour : peers_.neighbours()) {
        auto& [count, since] = neighbour.listening;
        const auto current = neighbour.page->listening.load(std::memory_order_relaxed);
        if (std::exchange(count, current) != current) since = now;
    }
}

void FailureDetector::look_at_connections() {
    for (RemotePeer& remote : peers_.remotes()) {
        remote.sink->look();
        const bool was_lost = remote.lost.has_value();
        remote.lost = remote.source->ended();
        if (remote.peer->departure()) remote.lost = "it has left";
        if (!remote.lost) remote.lost = remote.sink->broken();
        const bool arrives = std::exchange(remote.arrived, remote.source->arrived()) != remote.source->arrived();
        // The end of our own connection may overtake data that the peer has sent, all of which counts.
        if (remote.lost && (!was_lost || arrives)) remote.lost_at = ddprun::Clock::now();
    }
}

/// Receives the data that a lost peer has sent, because all of it counts. Returns whether some is left.
bool FailureDetector::drain(Peer& peer) {
    bool moved = true;
    for (int pass = 0; moved && pass < kMaxDrainPasses; ++pass) moved = peer.progress().moved;
    works_.collect(peers_.own().finished);
    return moved;
}

std::optional<P2pEnd> FailureDetector::find_lost(ddprun::TimePoint now) {
    for (const Neighbour& neighbour : peers_.neighbours()) {
        const auto absence = setup_.node.progress.absence(neighbour.index);
        if (!absence || drain(*neighbour.peer)) continue;
        if (auto found = end_without(neighbour.peer->rank(), absence->failure)) return found;
    }
    for (const RemotePeer& remote : peers_.remotes()) {
        if (!remote.lost) continue;
        const int rank = remote.peer->rank();
        const auto& departure = remote.peer->departure();
        // Without a final report: if the whole group has failed, the report of that may still arrive.
        if (!departure && now < pauses_.limit(remote.lost_at + kReporting, {}, remote.lost_at)) continue;
        const Failure lost{.kind = FailureKind::kPeerLost,
                           .code = ErrorCode::PeerLost,
                           .cause = fmt::format("lost {}: {}", peers_.name_of(rank), *remote.lost),
                           .culprits = {rank}};
        if (auto found = end_without(rank, departure ? *departure : lost)) return found;
    }
    return std::nullopt;
}

/// Returns the end that follows from the loss of a rank; nothing if no work in flight needs it.
std::optional<P2pEnd> FailureDetector::end_without(int rank, const Failure& why) const {
    const auto& works = works_.in_flight();
    const auto found = std::ranges::find_if(
        works, [rank](const auto& one) REQUIRES(kRunning) { return waits_for(*one.second, rank); });
    if (found == works.end()) return std::nullopt;
    // A rank that leaves because of a failure has reported that before.
    if (const auto poison = setup_.node.failure.for_this_rank()) return P2pEnd{.why = *poison};
    const auto& work = found->second;
    return P2pEnd{.why = met_in(unfinished_text(*work), why), .about = work, .is_ours = true};
}

/// Shows in the flight record a peer whose host is silent: beside every work in flight, because data of a work that has
/// ended here may not have arrived there.
void FailureDetector::note_unreachable(ddprun::TimePoint now) {
    if (now < hosts_looked_at_ + kLookAtHosts) return;
    hosts_looked_at_ = now;
    const auto& remotes = peers_.remotes();
    const auto silent =
        std::ranges::find_if(remotes, [](const RemotePeer& remote) { return remote.sink->host_is_silent(); });
    const bool was_noted = std::exchange(noted_unreachable_, silent != remotes.end());
    if (!was_noted && !noted_unreachable_) return;
    int peer = -1;
    if (noted_unreachable_) peer = setup_.members[static_cast<std::size_t>(silent->peer->rank())].global_rank;
    for (const auto& [seq, work] : works_.in_flight()) {
        const auto& entries = work->batch.record_entries;
        for (std::size_t i = 0; i < entries.size(); ++i)
            if (!work->is_done(i)) entries[i].unreachable(peer);
    }
}

/// Near a deadline, asks the ranks of other nodes whether they are late or wait themselves.
void FailureDetector::ask_remotes(ddprun::TimePoint now) {
    for (const auto& [seq, work] : works_.in_flight()) {
        if (now + kAskBefore < limit(*work)) continue;
        for (RemotePeer& remote : peers_.remotes()) {
            if (!waits_for(*work, remote.peer->rank())) continue;
            const bool begins = now - std::exchange(remote.asked, now) >= kSilence;
            const auto answer = remote.peer->listening();
            if (std::exchange(remote.listening.count, answer) != answer || begins) remote.listening.since = now;
            remote.peer->ask();
        }
    }
}

/// Returns whether a peer signals that it waits for another rank itself.
bool FailureDetector::is_listening(int rank, ddprun::TimePoint now) const {
    if (const Neighbour* const neighbour = peers_.neighbour(rank)) return now - neighbour->listening.since < kSilence;
    const auto rank_of = [](const RemotePeer& one) { return one.peer->rank(); };
    const auto remote = std::ranges::find(peers_.remotes(), rank, rank_of);
    return remote == peers_.remotes().end() || now - remote->listening.since < kSilence;  // neither: it is this rank
}

/// Returns the timeout of the oldest work that waits for a silent rank past its limit, or for any rank kNetworkExtra
/// later; nothing if there is none.
/// now   the same as for note_pause(): a later pause has moved no limit yet
std::optional<P2pEnd> FailureDetector::find_overdue(ddprun::TimePoint now) {
    for (const auto& [seq, work] : works_.in_flight()) {
        const TransferList& batch = work->batch;
        if (now < limit(*work)) continue;
        std::vector<int> missing;
        std::vector<int> silent;
        for (std::size_t i = 0; i < batch.transfers.size(); ++i) {
            const int rank = batch.transfers[i].peer;
            if (work->is_done(i) || std::ranges::find(missing, rank) != missing.end()) continue;
            missing.push_back(rank);
            if (!is_listening(rank, now)) silent.push_back(rank);
        }
        if (silent.empty() && now < limit(*work, kNetworkExtra)) continue;
        return overdue(work, missing, silent);
    }
    return std::nullopt;
}

/// Returns the timeout of a work. The silent ones of the missing ranks are the culprits; if none is silent, all are.
P2pEnd FailureDetector::overdue(const std::shared_ptr<P2pWork>& work, const std::vector<int>& missing,
                                const std::vector<int>& silent) {
    const auto& culprits = silent.empty() ? missing : silent;
    std::vector<std::string> names;
    for (const int rank : culprits) names.push_back(peers_.name_of(rank));
    std::string hint = silent.empty() ? "; it may wait for something else itself, or the tags differ" : "";
    for (const int rank : missing) {
        const std::string unexpected = peers_.at(rank).matching().unexpected_text();
        if (unexpected.empty()) continue;
        hint += fmt::format("; {} has sent messages without a matching receive: {}", peers_.name_of(rank), unexpected);
    }
    Failure late{.code = ErrorCode::Timeout,
                 .cause = fmt::format("{} waited until its deadline for {} in {}{}", setup_.node.ranks.self(),
                                      ddprun::list_of(std::move(names)), unfinished_text(*work), hint),
                 .culprits = culprits};
    return {.why = std::move(late), .about = work, .is_ours = true};
}

}  // namespace ddp::detail::p2p
