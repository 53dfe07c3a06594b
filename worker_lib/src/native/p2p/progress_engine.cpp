#include "worker_lib/src/native/p2p/progress_engine.hpp"

#include <exception>

#include "worker_lib/src/native/protocol/deadlines.hpp"
#include "worker_lib/src/native/protocol/failure_note.hpp"
#include "worker_lib/src/native/shm/waiter.hpp"

namespace ddp::detail::p2p {

namespace {

/// Passes in which a rank that leaves still moves messages: 100 MiB at most.
constexpr int kLastPasses = 100;

}  // namespace

Failure group_is_gone() { return {.code = ErrorCode::Aborted, .cause = "the group is gone", .names_group = true}; }

bool ProgressEngine::pass() {
    if (failure_ && !works_.any_submitted(std::memory_order_acquire)) return false;
    try {
        return pass_or_throw();
    } catch (...) {
        fail_by_exception();
        return false;
    }
}

bool ProgressEngine::pass_or_throw() {
    if (works_.any_submitted(std::memory_order_acquire)) take_submitted();
    if (busy() && !failure_ && setup_.node.failure.poisoned() && !setup_.node.failure.stopped()) check_for_failures();
    if (failure_) return false;
    if (with_network_) peers_.accept();
    const bool moved = move_all();
    works_.collect(peers_.own().finished);
    const auto& reported = peers_.own().reported_failure;
    if (!reported) return moved;
    setup_.node.failure.poison(*reported, setup_.node.progress.last_done());
    fail({.why = *reported, .is_ours = true});
    return false;
}

bool ProgressEngine::move_all() {
    bool moved = false;
    for (Peer* one : peers_.all()) {
        if (!with_network_ && one->is_remote()) continue;
        const auto [some, concerned] = one->progress();
        moved = moved || some;
        const Neighbour* const neighbour = concerned ? peers_.neighbour(one->rank()) : nullptr;
        if (neighbour != nullptr) sleeper_.wake(*neighbour->page);
    }
    return moved;
}

/// Fails the group with the exception that is being handled.
void ProgressEngine::fail_by_exception() {
    try {
        throw;
    } catch (const Error& error) {
        fail({.why = failure_of(error), .is_ours = true});
    } catch (const std::exception& error) {  // out of memory, most likely
        fail({.why = {.cause = error.what(), .names_group = true}, .is_ours = true});
    }
}

void ProgressEngine::take_submitted() {
    const auto taken = works_.take_submitted();
    const auto failure = failure_ ? failure_ : setup_.node.failure.for_this_rank();
    if (failure) return fail({.why = *failure});
    for (const auto& work : taken) {
        for (std::size_t i = 0; i < work->batch.transfers.size(); ++i) {
            if (!work->is_done(i)) peers_.at(work->batch.transfers[i].peer).post({work, i});
        }
    }
}

void ProgressEngine::check_for_failures() {
    if (failure_) return;
    std::optional<P2pEnd> found;
    try {
        detector_.look_at_connections();
        if (!busy()) return detector_.rest();
        // While no caller waits, the program computes. Then it may be late for collectives, not for sends and receives.
        activity_.is_helped ? setup_.node.progress.signal_listening() : setup_.node.progress.signal_waiting();
        found = detector_.find_failure();
    } catch (...) {
        return fail_by_exception();
    }
    if (found) fail(*found);
}

void ProgressEngine::fail(const P2pEnd& end) {
    works_.collect(peers_.own().finished);
    const bool first = !failure_;
    if (first) failure_ = end.why;
    if (first && end.is_ours) setup_.on_failure(end.why);
    // A rank that only leaves sends its final report in stop().
    if (first && !activity_.is_stopping && !setup_.node.failure.stopped()) {
        report_end(setup_.node.failure.for_other_nodes().value_or(end.why), true);
    }
    for (Peer* one : peers_.all()) one->clear();
    works_.fail_all(end.why.code, [&](const P2pWork& work) REQUIRES(kRunning) {
        const bool named = &work == end.about.get();
        return to_error(named ? end.why : met_in(unfinished_text(work), end.why), setup_.group,
                        setup_.node.ranks.self());
    });
    if (!first || !end.is_ours) return;
    for (const Neighbour& neighbour : peers_.neighbours()) sleeper_.wake(*neighbour.page);
}

void ProgressEngine::report_end(const Failure& why, bool failed) {
    reported_end_ = true;
    const FailureNote note = make_note(why);
    for (const RemotePeer& remote : peers_.remotes()) remote.peer->outbox().report_end(note, failed);
}

void ProgressEngine::stop(const Failure& final_report, bool failed) {
    const auto until = ddprun::Clock::now() + kReporting;
    for (int number = 0; ddprun::Clock::now() < until; ++number) {  // there may have been no room for replies
        const bool moved = pass();
        if (!peers_.owes_reply() && (!moved || number >= kLastPasses)) break;
        if (!moved) Waiter::yield();
    }
    if (!reported_end_) report_end(final_report, failed);
    fail({.why = setup_.node.failure.for_this_rank().value_or(group_is_gone())});
    take_submitted();
}

}  // namespace ddp::detail::p2p
