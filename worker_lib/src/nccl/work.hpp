#pragma once
// NcclWork: one step on the group's stream, and the events recorded before and behind it. Its DeviceQueue launches it
// and ends it. wait() makes a stream wait; wait_host(), and wait() on a barrier of hosts, block the host.

#include <atomic>
#include <memory>
#include <variant>
#include <vector>

#include "worker_lib/src/cuda/group_device.hpp"
#include "worker_lib/src/group/backend_handle.hpp"

namespace ddp::detail {

/// A collective operation, or sends and receives of this rank.
using NcclTask = std::variant<Operation, TransferList>;

class NcclWork final : public WorkState {
public:
    /// longest_abort   NcclLimits::longest_abort() of the group. See grace().
    /// captured        it becomes a part of the graph into which the caller's stream is captured
    NcclWork(NcclTask task, std::shared_ptr<GroupDevice> device, std::shared_ptr<BackendHandle<BackendImpl>> backend,
             ddprun::Duration longest_abort, bool captured);
    ~NcclWork() override;

    [[nodiscard]] const NcclTask& task() const { return task_; }
    /// Returns whether it is a barrier without a stream, which orders nothing on the device.
    [[nodiscard]] bool is_barrier_of_hosts() const;
    /// Returns whether it has ended when NCCL has put it into a graph. It has no events: replays have those.
    [[nodiscard]] bool is_captured() const { return captured_; }
    /// Returns whether it launches a graph, instead of calling NCCL.
    [[nodiscard]] bool is_replay() const;
    /// Returns the caller's stream, whose work at the time of the call comes before the operation.
    [[nodiscard]] CUstream caller() const;
    [[nodiscard]] const Participant& owner() const override { return backend_->owner(); }
    [[nodiscard]] std::string text() const override;
    /// Returns the number of its entry in the flight record, of a batch that of the first message; 0: it has none.
    [[nodiscard]] std::uint64_t entry_id() const;

    /// Marks the current work of the caller's stream, which comes before the operation. The caller's thread. Throws
    /// Error{System}, and Error{InvalidArgument} for a stream of another device.
    void record_caller();
    /// Makes the group's stream wait for that, and marks the start behind it. Throws Error{System}. The queue's thread
    /// calls this and the next four.
    void follow_caller();
    /// Marks the end behind the current work of the group's stream: NCCL has put the operation there. Throws
    /// Error{System}.
    void record_end();
    /// Returns whether record_end() has been called.
    [[nodiscard]] bool launched() const { return launched_.load(std::memory_order_acquire); }
    /// Returns CUDA_SUCCESS if the stream has passed the end, CUDA_ERROR_NOT_READY if not, else the device's error.
    /// Does not wait.
    [[nodiscard]] CUresult query() const;
    /// Marks the flight record if the stream has come to the operation. `ended`: it has passed the end, too. Asks CUDA
    /// until it has, not after.
    void mark_begun(bool ended);
    /// Returns whether mark_begun() has seen the start. Any thread.
    [[nodiscard]] bool has_begun() const { return begun_; }
    /// Returns when it has been launched, or has ended without; a captured one also when it will not be launched.
    void await_launch() const { settled_.wait(false, std::memory_order_acquire); }
    /// Ends await_launch() of a captured operation, whose group has failed: the abort waits for the end of the capture,
    /// and so for the caller.
    void give_up_launch() {
        if (captured_) settle();
    }
    /// Calls end(), and wakes threads in wait().
    [[nodiscard]] std::vector<Callback> finish(std::exception_ptr error);

    /// Makes the caller's stream wait for the result, while the host goes on as soon as the operation has been
    /// launched. A barrier of hosts blocks the host instead. Throws Error{InvalidArgument} when that stream is being
    /// captured.
    void wait() override;
    [[nodiscard]] bool blocks_host() const override { return is_barrier_of_hosts(); }
    /// Returns time for the communicator's abort: until that has ended, the device may write to the buffers.
    [[nodiscard]] ddprun::Duration grace() const override { return longest_abort_ + std::chrono::seconds(2); }
    // Each message of a batch has an entry of its own in the flight record.
    void note_waiter(bool blocked) const override;
    void note_peer_failed() const override;
    void note_end(bool well, bool timed_out) const override;
    void note_abort(std::string_view reason) const override;
    bool abort_group(std::string_view reason) override { return abort_by(*this, reason, *backend_); }

private:
    void settle();

    const NcclTask task_;
    const std::shared_ptr<GroupDevice> device_;
    const std::shared_ptr<BackendHandle<BackendImpl>> backend_;
    const ddprun::Duration longest_abort_;
    const bool captured_;
    CUevent start_ = nullptr;  // both from device_'s pool, since record_caller(); on the caller's stream at first
    CUevent end_ = nullptr;
    std::atomic<bool> launched_ = false;
    std::atomic<bool> settled_ = false;  // launched, or ended without
    std::atomic<bool> begun_ = false;
};

}  // namespace ddp::detail
