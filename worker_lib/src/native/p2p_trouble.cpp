// The end of sends and receives, and who is told what: poison, absent peers, deadlines, leaving.

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "worker_lib/src/exchange.hpp"
#include "worker_lib/src/native/deadlines.hpp"
#include "worker_lib/src/native/departure.hpp"
#include "worker_lib/src/native/p2p.hpp"
#include "worker_lib/src/native/waiter.hpp"

namespace ddp::detail {

namespace {

/// In which a rank that leaves says what it has to say, or what it has sent is taken: 100 MiB at most.
constexpr int kLastTurns = 100;
/// So long before a deadline ranks of other nodes are asked whether they wait themselves: they are silent, or answer
/// many times.
constexpr auto kAsking = 2 * kSilence;

/// The first transfer of a work that is not done, in words.
std::string unfinished_text(const P2pWork& work) {
    for (std::size_t i = 0; i < work.batch.transfers.size(); ++i) {
        if (!work.is_done(i)) return describe(work.batch, work.batch.transfers[i]);
    }
    return "p2p";
}

bool waits_for(const P2pWork& work, int rank) {
    for (std::size_t i = 0; i < work.batch.transfers.size(); ++i) {
        if (!work.is_done(i) && work.batch.transfers[i].peer == rank) return true;
    }
    return false;
}

}  // namespace

void P2p::look_around() {
    if (failure_) return;
    look_at_connections();
    if (failure_ || !busy()) return;
    helped_ ? setup_.node.say_listening() : setup_.node.say_waiting();  // a program that computes is late elsewhere
    const auto now = ddprun::Clock::now();
    const auto missed = unwatched(std::exchange(looked_, now), now);
    for (LocalPeer& neighbour : neighbours_) {
        neighbour.since = std::min(neighbour.since + missed, now);
        const auto count = neighbour.page->listening.load(std::memory_order_relaxed);
        if (std::exchange(neighbour.listening, count) != count) neighbour.since = now;
    }
    ask_remotes(now);
    for (P2pPeer* one : peers_) one->note_unasked(now);
    if (const auto poison = setup_.node.failure()) return fail(*poison, nullptr, false);
    look_for_absent();
    if (!failure_) look_at_deadlines();
}

/// Also while nothing is under way: a connection in the making wants its greeting.
void P2p::look_at_connections() {
    for (RemotePeer& remote : remotes_) {
        try {
            remote.outlet->look();
        } catch (...) {
            return fail_by_exception();
        }
        const bool known = remote.gone.has_value();
        remote.gone = remote.inlet->ended();
        if (remote.peer->departure()) remote.gone = "it has left";
        if (!remote.gone) remote.gone = remote.outlet->broken();
        const bool comes = std::exchange(remote.arrived, remote.inlet->arrived()) != remote.inlet->arrived();
        // The end of our own connection may overtake what the peer has sent: all of that counts.
        if (remote.gone && (!known || comes)) remote.until = ddprun::Clock::now() + kTelling;
    }
}

/// Takes what a peer that is gone has sent: all of that counts. True: there is more than fits into one go.
bool P2p::drain(P2pPeer& peer) {
    bool moved = true;
    try {
        for (int turn = 0; moved && turn < kLastTurns; ++turn) moved = peer.progress().moved;
    } catch (...) {
        fail_by_exception();
        return false;
    }
    collect_finished();
    return moved;
}

/// For errors: of ranks on other nodes also where they were to be reached.
std::string P2p::name_of(int rank) const {
    const bool here = std::ranges::find(setup_.topology.local(), rank) != setup_.topology.local().end();
    return here ? detail::name_of(rank, setup_.members) : name_with_address(rank, setup_.members);
}

void P2p::look_for_absent() {
    for (std::size_t i = 0; i < neighbours_.size(); ++i) {  // there may be more in the end
        const auto gone = setup_.node.absence(neighbours_[i].index);
        if (!gone) continue;
        if (drain(*neighbours_[i].peer)) continue;
        if (failure_ || fail_for(neighbours_[i].peer->rank(), gone->error)) return;
    }
    for (std::size_t i = 0; i < remotes_.size(); ++i) {
        const auto gone = remotes_[i].gone;
        if (!gone) continue;
        const int rank = remotes_[i].peer->rank();
        const auto departure = remotes_[i].peer->departure();
        // Without a goodbye: if the whole group has failed, word of that is on its way.
        if (!departure && ddprun::Clock::now() < remotes_[i].until) continue;
        const Error lost(ErrorCode::PeerLost, fmt::format("lost {}: {}", name_of(rank), *gone), {rank});
        if (fail_for(rank, departure ? *departure : lost)) return;
    }
}

/// False: nothing under way needs that rank.
bool P2p::fail_for(int rank, const Error& why) {
    for (const auto& [seq, work] : in_flight_) {
        if (!waits_for(*work, rank)) continue;
        const auto about = work;
        // Whoever leaves because of a failure has told of it before.
        if (const auto poison = setup_.node.failure()) {
            fail(*poison, nullptr, false);
        } else {
            fail(cannot_finish(setup_.group, setup_.node.self(), unfinished_text(*about), why), about.get(), true);
        }
        return true;
    }
    return false;
}

/// Near the deadline: whether they are late, or wait themselves.
void P2p::ask_remotes(ddprun::TimePoint now) {
    for (const auto& [seq, work] : in_flight_) {
        if (now + kAsking < work->batch.deadline) continue;
        for (RemotePeer& remote : remotes_) {
            if (!waits_for(*work, remote.peer->rank())) continue;
            const bool begins = now - std::exchange(remote.asked, now) >= kSilence;
            const auto count = remote.peer->listening();
            if (std::exchange(remote.listening, count) != count || begins) remote.since = now;
            remote.peer->ask();
        }
    }
}

/// Whether the peer says that it waits for somebody itself.
bool P2p::is_listening(int rank) const {
    const auto now = ddprun::Clock::now();
    const auto is = [rank](const auto& one) { return one.peer->rank() == rank; };
    const auto neighbour = std::ranges::find_if(neighbours_, is);
    if (neighbour != neighbours_.end()) return now - neighbour->since < kSilence;
    const auto remote = std::ranges::find_if(remotes_, is);
    return remote == remotes_.end() || now - remote->since < kSilence;  // neither: it is this rank
}

void P2p::look_at_deadlines() {
    const auto now = ddprun::Clock::now();
    for (const auto& [seq, work] : in_flight_) {
        const TransferBatch& batch = work->batch;
        if (now < batch.deadline) continue;
        std::vector<int> absent;
        std::vector<int> silent;
        for (std::size_t i = 0; i < batch.transfers.size(); ++i) {
            const int rank = batch.transfers[i].peer;
            if (work->is_done(i) || std::ranges::find(absent, rank) != absent.end()) continue;
            absent.push_back(rank);
            if (!is_listening(rank)) silent.push_back(rank);
        }
        if (silent.empty() && now < network_deadline(batch.deadline)) continue;
        const auto& culprits = silent.empty() ? absent : silent;
        std::vector<std::string> names;
        for (const int rank : culprits) names.push_back(name_of(rank));
        std::string hint = silent.empty() ? "; it may wait for something else itself, or the tags differ" : "";
        for (const int rank : absent) {
            const std::string unasked = peer(rank).unasked();
            if (unasked.empty()) continue;
            hint += fmt::format("; {} has sent what nobody asks for: {}", name_of(rank), unasked);
        }
        const auto about = work;
        return fail(Error(ErrorCode::Timeout,
                          fmt::format("group '{}': {} waited until its deadline for {} in {}{}", setup_.group,
                                      setup_.node.self(), list_of(std::move(names)), unfinished_text(*about), hint),
                          culprits),
                    about.get(), true);
    }
}

/// Ends all that is under way. `about`: the work in whose words the failure is told. `tell`: the group does not know.
void P2p::fail(const Error& failure, const P2pWork* about, bool tell) {
    collect_finished();
    const bool first = !failure_;
    if (first) failure_ = failure;
    if (first && tell) setup_.on_failure(failure);
    // Who only leaves says so in stop().
    if (first && !stopping_ && !setup_.node.stopped()) {
        say_goodbye(setup_.node.failure_for_others().value_or(failure), true);
    }
    for (P2pPeer* one : peers_) one->clear();
    for (auto& [seq, work] : in_flight_) {
        const Error own = work.get() == about
                              ? failure
                              : cannot_finish(setup_.group, setup_.node.self(), unfinished_text(*work), failure);
        work->give_up(failure.code());
        done_.push_back({work, std::make_exception_ptr(own)});
    }
    in_flight_.clear();
    if (!first || !tell) return;
    for (const LocalPeer& neighbour : neighbours_) ring(neighbour);
}

void P2p::say_goodbye(const Error& why, bool failed) {
    goodbye_said_ = true;
    const FailureNote note = make_note(why, Wording::kComplete);
    for (const RemotePeer& remote : remotes_) remote.peer->say_goodbye(note, failed);
}

void P2p::stop(const Error& goodbye, bool failed) {
    if (stopping_.exchange(true)) return;
    interrupt();
    if (thread_.joinable()) thread_.join();
    Running running(running_);
    const auto enough = ddprun::Clock::now() + kTelling;
    for (int turn = 0; ddprun::Clock::now() < enough; ++turn) {  // what peers have to hear may have been out of room
        const bool moved = guarded_pass();
        if (!owes_word() && (!moved || turn >= kLastTurns)) break;
        if (!moved) Waiter::yield();
    }
    if (!goodbye_said_) say_goodbye(goodbye, failed);
    fail(setup_.node.failure().value_or(Error(ErrorCode::Aborted, "the group is gone")), nullptr, false);
    take_submitted();
    deliver(running);
    remotes_.clear();
    neighbours_.clear();
    peers_.clear();
    by_rank_.clear();
    door_.reset();
    ready_.reset();
}

}  // namespace ddp::detail
