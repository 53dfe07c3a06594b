#include "worker_lib/src/native/backend/operation_runner.hpp"

#include <fmt/format.h>

#include <new>
#include <utility>

#include "worker_lib/src/native/collectives/one_shot.hpp"
#include "worker_lib/src/util/float_environment.hpp"

namespace ddp::detail {

OperationRunner::OperationRunner(ConnectedPeers& peers, JobQueue& queue, GroupFailure& failure, AllReduceRules rules,
                                 std::shared_ptr<BackendHandle<NativeBackend>> handle)
    : peers_(peers), queue_(queue), group_failure_(failure), rules_(std::move(rules)), handle_(std::move(handle)) {
    const auto ranks = static_cast<std::size_t>(peers.node().ranks.size());
    scratch_.sources.reserve(ranks);  // so that an operation that submit() carries out allocates nothing
    scratch_.outputs.reserve(ranks + 1);
}

std::shared_ptr<WorkState> OperationRunner::submit(Operation&& operation, OperationRecord& record) {
    const bool one_shot = is_one_shot(peers_.topology(), operation);
    if ((one_shot || may_do_at_once(operation)) && running_.try_lock()) {
        // Held until the operation is in the queue, so that no thread takes the queue for empty.
        const ddprun::Lock running(running_, std::adopt_lock);
        // This cannot change meanwhile: no other thread submits, nor takes jobs away.
        const bool alone = queue_.is_idle();
        if (announce(operation, one_shot, alone)) {
            record.write(operation, Announced::kYes);
            const Step step = alone ? finish_soon(operation, one_shot) : Step::kOpened;
            if (step == Step::kDone) return nullptr;
            return enqueue_announced(std::move(operation), step);
        }
    }
    record.write(operation, Announced::kNo);
    return enqueue(std::move(operation), Step::kNone);
}

bool OperationRunner::may_do_at_once(const Operation& operation) const {
    return operation.kind == OpKind::kAllReduce && operation.buffer.bytes() <= kImmediateBytes &&
           peers_.topology().nodes.size() == 1 && !peers_.node().ranks.oversubscribed();
}

/// Takes the first step of a small operation, if that is possible here and now.
/// alone   nothing is queued
bool OperationRunner::announce(const Operation& operation, bool one_shot, bool alone) noexcept {
    if (ending_.failure) return false;
    if (one_shot) {
        if (!alone && !queue_.may_announce_behind(operation)) return false;
        return peers_.node().meetings.try_open(operation, {}, one_shot_data(peers_.topology(), operation));
    }
    // Peers still need this rank afterwards: it must not wait behind others, nor for a caller that computes.
    if (!alone || !queue_.callers_wait()) return false;
    const OwnBuffers own = own_buffers(operation);
    if (own.input.is_foreign() || own.output.is_foreign()) return false;
    return peers_.node().meetings.try_open(operation, {.input = own.input.offset(), .output = own.output.offset()}, {});
}

/// Carries out the rest, as far as the peers arrive within a moment. The steps that are left begin when a thread runs
/// them: until then this rank waits for no peer, and does not appear to.
Step OperationRunner::finish_soon(const Operation& operation, bool one_shot) {
    Node& node = peers_.node();
    if (!node.meetings.try_join()) return Step::kOpened;
    const ScopedFloatEnvironment floats;
    if (one_shot) {
        finish_one_shot(context(), operation, OwnData::kBuffer);
    } else {
        const Step step = reduce_and_arrive(context(), operation, own_buffers(operation));
        if (step != Step::kArrived || !node.barrier.try_wait()) return step;
    }
    node.done(operation);
    return Step::kDone;
}

std::shared_ptr<WorkState> OperationRunner::enqueue(Operation&& operation, Step step) {
    auto work = std::make_shared<NativeWork>(operation, handle_);
    const bool served = step == Step::kArrived || (step == Step::kOpened && is_one_shot(peers_.topology(), operation));
    queue_.push({.operation = std::move(operation), .work = work, .step = step, .peers_served = served});
    return work;
}

/// Queues an operation that the peers have already seen announced, to go on at `step`. If there is no memory for its
/// work, fails the group and rethrows: the peers count on this rank.
std::shared_ptr<WorkState> OperationRunner::enqueue_announced(Operation&& operation, Step step) {
    try {
        return enqueue(std::move(operation), step);
    } catch (const std::bad_alloc&) {
        group_failure_.report_out_of_memory();
        throw;
    }
}

void OperationRunner::help(const WorkState& work) {
    if (!running_.try_lock()) return queue_.wake();  // the running thread may stop before this work
    const ddprun::Lock running(running_, std::adopt_lock);
    while (!work.done()) {
        const auto job = queue_.next(work.deadline());
        if (!job) return;
        perform(*job);
    }
}

void OperationRunner::run_queue() {
    const ddprun::Lock running(running_);
    while (const auto job = queue_.next()) perform(*job);
    if (!queue_.take_failure() || ending_.failure) return;
    if (const auto failure = peers_.node().failure.for_this_rank())
        fail(*failure, peers_.node().failure.valid_through());  // for other nodes
}

OperationRunner::Ending OperationRunner::ending() {
    const ddprun::Lock running(running_);
    return ending_;
}

void OperationRunner::perform(const Job& job) {
    try {
        run(job);
    } catch (const Error& error) {
        if (peers_.node().failure.stopped()) note_unfinished(job);
        return end_badly(job, error);
    } catch (const std::exception& error) {  // out of memory, most likely
        return end_badly(job, Error(ErrorCode::System, fmt::format("{}: {}", describe(job.operation), error.what())));
    }
    complete(*job.work, nullptr);
}

void OperationRunner::run(const Job& job) {
    const Operation& operation = job.operation;
    if (ending_.failure) {
        Failure failure = *ending_.failure;
        failure.operation.clear();
        const Error why = to_error(failure, peers_.group(), peers_.node().ranks.self());
        throw why.reworded(fmt::format("{} cannot run: the group has failed: {}", describe(operation), why.what()));
    }
    Node& node = peers_.node();
    job.work->begin();
    node.progress.begin(operation);
    if (job.step == Step::kReduced || job.step == Step::kArrived) node.meetings.take_earliest_deadline();
    // Peers that have been served may complete it without this rank, so this rank must complete it, too.
    if (!job.peers_served) node.failure.check(operation);
    if (is_one_shot(peers_.topology(), operation)) {
        if (job.step == Step::kNone) node.meetings.open(operation, {}, one_shot_data(peers_.topology(), operation));
        node.meetings.join(operation);
        const ScopedFloatEnvironment floats;
        finish_one_shot(context(), operation, OwnData::kAnnounced);
    } else {
        const ScopedFloatEnvironment floats;
        run_collective(context(), operation, own_buffers(operation), job.step);
    }
    node.done(operation);
}

void OperationRunner::end_badly(const Job& job, const Error& error) {
    fail(failure_of(error), job.operation.seq - 1);
    const Watch* const watch = peers_.watch();
    int rank = watch != nullptr ? watch->unreachable() : -1;
    // The connection for messages may end before that of the watch.
    if (const Links* const links = peers_.links(); rank < 0 && links != nullptr) rank = links->unreachable();
    if (rank >= 0) job.operation.record_entry.unreachable(rank);
    complete(*job.work, std::make_exception_ptr(error));
}

void OperationRunner::complete(WorkState& work, std::exception_ptr error) {
    work.complete(std::move(error), [&](std::string_view thrown) { group_failure_.abort_for(work, thrown); });
}

/// Notes a job that fails because this rank leaves. If the peers need nothing more for it, they may report that this
/// rank has completed it.
void OperationRunner::note_unfinished(const Job& job) {
    ending_.left_in_flight = ending_.left_in_flight || !job.peers_served;
    if (!ending_.left_in_flight) peers_.node().done(job.operation);
}

/// Fails the whole group: the ranks of this node at once, others by a final report, unless this rank is leaving (then
/// the destructor of NativeBackend reports that). Operations after number `after` cannot complete; peers may still run
/// earlier ones.
void OperationRunner::fail(const Failure& failure, std::uint64_t after) {
    if (ending_.failure) return;
    ending_.failure = failure;
    Node& node = peers_.node();
    node.failure.poisoned() ? node.failure.propagate(after) : node.failure.poison(failure, after);
    Links* const links = peers_.links();
    if (links == nullptr) return;
    links->finish_messages();  // while the buffers of the operation are still this rank's
    if (!node.failure.stopped()) links->report_end(failure);
}

CollectiveContext OperationRunner::context() {
    return {.topology = peers_.topology(),
            .node = peers_.node(),
            .links = peers_.links(),
            .scratch = scratch_,
            .rules = rules_,
            .members = peers_.members()};
}

OwnBuffers OperationRunner::own_buffers(const Operation& operation) {
    return {.input = own_buffer(operation.buffer), .output = own_buffer(operation.result())};
}

OwnBuffer OperationRunner::own_buffer(const Buffer& buffer) {
    return {.data = static_cast<std::byte*>(buffer.data),
            .bytes = buffer.bytes(),
            .heap_offset = peers_.arena().offset_of(buffer.data, buffer.bytes())};
}

}  // namespace ddp::detail
