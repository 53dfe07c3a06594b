#pragma once
// NcclWork: one step on the group's stream, and the event recorded behind it. The watchdog completes it; what waiting
// means depends on who waits: a stream (wait) or the host (wait_host, and wait on a barrier).

#include <memory>
#include <variant>

#include "worker_lib/src/backend.hpp"
#include "worker_lib/src/nccl/group_device.hpp"

namespace ddp::detail {

/// An operation of all ranks, or sends and receives of this one.
using NcclTask = std::variant<Operation, TransferBatch>;

class NcclWork final : public WorkState {
public:
    /// abort_patience   how long an abort of its communicator may take, and then its kernels to leave
    NcclWork(NcclTask task, std::shared_ptr<GroupDevice> device, std::shared_ptr<const Participant> owner,
             ddprun::Duration abort_patience);
    ~NcclWork() override;

    [[nodiscard]] const NcclTask& task() const { return task_; }
    [[nodiscard]] bool is_barrier() const;
    /// Of who called: what is on it now comes before.
    [[nodiscard]] cudaStream_t caller() const;
    [[nodiscard]] const Participant& owner() const override { return *owner_; }
    [[nodiscard]] std::string text() const override;

    /// Before record_end(). Throws Error{System} when CUDA has no event for it.
    void prepare();
    /// Records the end event behind what is on the group's stream now. `launched`: the operation is among it, as far as
    /// NCCL says; if not, the event only tells when the stream is empty.
    [[nodiscard]] cudaError_t record_end(bool launched);
    /// cudaSuccess: the stream has come past the end event; cudaErrorNotReady: not yet; else the device's error. Does
    /// not wait.
    [[nodiscard]] cudaError_t query() const;
    /// Whether there is an end event to ask for.
    [[nodiscard]] bool recorded() const { return recorded_; }

    /// Makes the stream given at submit wait for the result; the host goes on. A barrier, or an operation that never
    /// reached the device, blocks the host instead. Throws Error{InvalidArgument} when that stream is in a capture.
    void wait() override;
    [[nodiscard]] bool blocks_host() const override { return is_barrier() || !launched_; }
    /// The watchdog ends a work when its communicator has been aborted: before that the device may write to buffers.
    [[nodiscard]] ddprun::Duration grace() const override { return 2 * abort_patience_ + std::chrono::seconds(2); }
    // Each message stands on the board by itself.
    void note_waiter(bool blocked) const override;
    void note_end(bool well, bool timed_out) const override;
    void note_abort(std::string_view reason) const override;

    /// Nothing of the group is before it on the device any more: it begins. The watchdog's thread.
    void its_turn();

private:
    const NcclTask task_;
    const std::shared_ptr<GroupDevice> device_;
    const std::shared_ptr<const Participant> owner_;
    const ddprun::Duration abort_patience_;
    cudaEvent_t end_ = nullptr;  // of device_'s pool, from prepare() on
    bool recorded_ = false;      // this and the next are set before anybody else sees this object
    bool launched_ = false;
    bool begun_ = false;  // its_turn() only
};

}  // namespace ddp::detail
