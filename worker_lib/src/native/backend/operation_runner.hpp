#pragma once
// OperationRunner: runs the operations of one group, in their order, on the thread that calls it. That is the thread
// that submits a small operation, one that waits for a work, or else the progress thread. `running_` admits one at a
// time. NativeBackend owns it.
//
// Small operations inside a node are announced by submit(), and finished by it if the peers have arrived: peers need
// nothing more of this rank then, so the progress thread is not woken for them. An all-reduce of up to kImmediateBytes
// (collectives.hpp) is carried out by submit() as well, as far as the peers arrive within a moment, unless callers seem
// to compute meanwhile.

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>

#include "common/mutex.hpp"
#include "worker_lib/src/native/backend/connected_peers.hpp"
#include "worker_lib/src/native/backend/group_failure.hpp"
#include "worker_lib/src/native/backend/job_queue.hpp"
#include "worker_lib/src/native/backend/work.hpp"
#include "worker_lib/src/native/collectives/collectives.hpp"
#include "worker_lib/src/operation/submission_record.hpp"
#include "worker_lib/src/tuning/light_mutex.hpp"

namespace ddp::detail {

class OperationRunner {
public:
    /// `peers`, `queue` and `failure` must outlive this object.
    OperationRunner(ConnectedPeers& peers, JobQueue& queue, GroupFailure& failure, AllReduceRules rules,
                    std::shared_ptr<BackendHandle<NativeBackend>> handle);

    /// Implements BackendImpl::submit().
    [[nodiscard]] std::shared_ptr<WorkState> submit(Operation&& operation, OperationRecord& record) EXCLUDES(running_);
    /// Runs operations until `work` is done. If another thread runs, or an operation before it has a later deadline,
    /// wakes the progress thread and returns.
    void help(const WorkState& work) EXCLUDES(running_);
    /// Runs the queued operations, and reports a failure of the group to other nodes. The progress thread calls it.
    void run_queue() EXCLUDES(running_);

    /// The end of the group on this rank; final when no thread runs operations any more.
    struct Ending {
        std::optional<Failure> failure;  ///< the first one that an operation met
        bool left_in_flight = false;     ///< work that others need has failed because this rank leaves
    };
    [[nodiscard]] Ending ending() EXCLUDES(running_);

private:
    // Small operations, by the thread that submits.
    [[nodiscard]] bool may_do_at_once(const Operation& operation) const;
    [[nodiscard]] bool announce(const Operation& operation, bool one_shot, bool alone) noexcept REQUIRES(running_);
    [[nodiscard]] Step finish_soon(const Operation& operation, bool one_shot) REQUIRES(running_);
    [[nodiscard]] std::shared_ptr<WorkState> enqueue_announced(Operation&& operation, Step step);
    [[nodiscard]] std::shared_ptr<WorkState> enqueue(Operation&& operation, Step step);

    // Queued ones.
    void perform(const Job& job) REQUIRES(running_);
    void run(const Job& job) REQUIRES(running_);
    void end_badly(const Job& job, const Error& error) REQUIRES(running_);
    void complete(WorkState& work, std::exception_ptr error);
    void note_unfinished(const Job& job) REQUIRES(running_);
    void fail(const Failure& failure, std::uint64_t after) REQUIRES(running_);

    [[nodiscard]] CollectiveContext context() REQUIRES(running_);
    [[nodiscard]] OwnBuffers own_buffers(const Operation& operation);
    [[nodiscard]] OwnBuffer own_buffer(const Buffer& buffer);

    ConnectedPeers& peers_;
    JobQueue& queue_;
    GroupFailure& group_failure_;
    const AllReduceRules rules_;
    const std::shared_ptr<BackendHandle<NativeBackend>> handle_;
    LightMutex running_;  ///< taken before the queue's; also protects operations of Node and Links
    OperationScratch scratch_ GUARDED_BY(running_);
    Ending ending_ GUARDED_BY(running_);
};

}  // namespace ddp::detail
