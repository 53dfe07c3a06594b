#pragma once
// NcclWork: one step on the group's stream, and the events recorded before and behind it. The watchdog completes it,
// and calls what marks its entry in the flight record: mark_begun() and note_end(). wait() makes a stream wait;
// wait_host(), and wait() on a barrier, block the host.

#include <memory>
#include <variant>

#include "worker_lib/src/cuda/group_device.hpp"
#include "worker_lib/src/group/backend_handle.hpp"

namespace ddp::detail {

/// A collective operation, or sends and receives of this rank.
using NcclTask = std::variant<Operation, TransferList>;

class NcclWork final : public WorkState {
public:
    /// abort_timeout   the watchdog may need it twice: for ncclCommAbort, and for the kernels to stop. See grace().
    NcclWork(NcclTask task, std::shared_ptr<GroupDevice> device, std::shared_ptr<BackendHandle<BackendImpl>> backend,
             ddprun::Duration abort_timeout);
    ~NcclWork() override;

    [[nodiscard]] const NcclTask& task() const { return task_; }
    /// Returns whether it is a barrier without a stream, which orders nothing on the device.
    [[nodiscard]] bool is_barrier_of_hosts() const;
    /// Returns the caller's stream, whose work at the time of the call comes before the operation.
    [[nodiscard]] CUstream caller() const;
    [[nodiscard]] const Participant& owner() const override { return backend_->owner(); }
    [[nodiscard]] std::string text() const override;

    /// Takes both events from the pool, before record_start(). Throws Error{System} when CUDA has none.
    void prepare();
    /// Records the start event: the stream passes it when it has done all earlier operations, and the work of the
    /// caller's stream for which it waits. Throws Error{System}.
    void record_start();
    /// Records the end event behind the current work of the group's stream. `launched`: NCCL has put the operation
    /// there; else the event only shows when the stream is empty.
    [[nodiscard]] CUresult record_end(bool launched);
    /// Returns CUDA_SUCCESS if the stream has passed the end event, CUDA_ERROR_NOT_READY if not, else the device's
    /// error. Does not wait.
    [[nodiscard]] CUresult query() const;
    /// Returns whether there is an end event to query.
    [[nodiscard]] bool recorded() const { return recorded_; }

    /// Makes the caller's stream wait for the result, while the host goes on. A barrier of hosts, or an operation that
    /// was not launched, blocks the host instead. Throws Error{InvalidArgument} when that stream is being captured.
    void wait() override;
    [[nodiscard]] bool blocks_host() const override { return is_barrier_of_hosts() || !launched_; }
    /// Returns time for the communicator's abort: until that has ended, the device may write to the buffers.
    [[nodiscard]] ddprun::Duration grace() const override { return 2 * abort_timeout_ + std::chrono::seconds(2); }
    // Each message of a batch has an entry of its own in the flight record.
    void note_waiter(bool blocked) const override;
    void note_peer_failed() const override;
    void note_end(bool well, bool timed_out) const override;
    void note_abort(std::string_view reason) const override;
    bool abort_group(std::string_view reason) override { return abort_by(*this, reason, *backend_); }

    /// Marks the flight record if the stream has come to the operation. `ended`: it has passed the end, too. Asks CUDA
    /// until it has, not after. The watchdog's thread.
    void mark_begun(bool ended);
    /// Returns whether mark_begun() has seen the start. The watchdog's thread.
    [[nodiscard]] bool has_begun() const { return begun_; }

private:
    const NcclTask task_;
    const std::shared_ptr<GroupDevice> device_;
    const std::shared_ptr<BackendHandle<BackendImpl>> backend_;
    const ddprun::Duration abort_timeout_;
    CUevent start_ = nullptr;  // both from device_'s pool, since prepare()
    CUevent end_ = nullptr;
    bool recorded_ = false;  // this and launched_ are set before another thread sees this object
    bool launched_ = false;
    bool begun_ = false;  // mark_begun() only
};

}  // namespace ddp::detail
