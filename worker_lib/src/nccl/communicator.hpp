#pragma once
// Communicator: owns one ncclComm_t and keeps NCCL's rules for it. One thread is inside at a time, every step of a
// non-blocking communicator is polled to its end, and abort is called at most once, with a bounded wait. Any thread.

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/mutex.hpp"
#include "worker_lib/src/cuda/group_device.hpp"
#include "worker_lib/src/group/backend.hpp"
#include "worker_lib/src/nccl/api.hpp"

namespace ddp::detail {

/// Timeouts of the backend when it aborts its communicator or ends, or a peer or another group has failed.
struct NcclLimits {
    ddprun::Duration abort_timeout = std::chrono::seconds(10);
    ddprun::Duration finish_timeout = std::chrono::seconds(5);  ///< for the peers to finish their communicators too
    /// For an operation to end by itself after the process of a peer has ended: the peer may have sent its part before.
    ddprun::Duration loss_timeout = std::chrono::seconds(2);
    /// For an operation to end by itself after another group of the device has failed.
    ddprun::Duration shared_timeout = std::chrono::milliseconds(500);
};

/// Returns whether to make non-blocking communicators with this version of NCCL: from 2.27 on. Older ones have faults
/// in that mode (table in docs/design/013): their communicators are made blocking, on a thread that can be left behind.
/// NCCL_COMM_BLOCKING, which NCCL reads as well, overrides the version.
/// setting   value of NCCL_COMM_BLOCKING, or nothing
[[nodiscard]] bool starts_nonblocking(int nccl_version, const std::optional<std::string>& setting);

class Communicator {
public:
    /// Connects to the other holders of `id`. Collective. Throws Error{Timeout} at `deadline`, Error{System} with
    /// NCCL's text.
    Communicator(const GpuApi& api, const GroupSpec& spec, std::shared_ptr<GroupDevice> device, const ncclUniqueId& id,
                 ddprun::TimePoint deadline, const NcclLimits& limits);
    ~Communicator();  ///< aborts the communicator, if it was neither finished nor aborted
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;

    /// Makes one call on the communicator and waits until NCCL has launched it, that is: its kernel is on the stream.
    /// Returns ncclInProgress if `deadline` passed first, nothing if the communicator was given up or aborted before or
    /// meanwhile.
    using Call = std::function<ncclResult_t(ncclComm_t)>;
    [[nodiscard]] std::optional<ncclResult_t> call(const Call& function, ddprun::TimePoint deadline) EXCLUDES(inside_);

    /// Returns whether call() may stay in NCCL past its deadline, until the peers arrive or the communicator is
    /// aborted.
    [[nodiscard]] bool may_block() const { return blocks_; }

    /// Makes call() return at once, now and later, because the communicator is about to be aborted. Does not wait.
    void give_up() { given_up_ = true; }

    /// Returns an error that NCCL met in the background. ncclSuccess: there is none, no communicator any more, or
    /// another thread is inside. Never waits.
    [[nodiscard]] ncclResult_t async_error() EXCLUDES(inside_);

    /// Has NCCL abort the communicator, which asks its kernels to stop, and frees it. Returns false if NCCL did not
    /// return within limits.abort_timeout: the device may then go on writing to buffers, and a thread is left behind.
    /// Waits up to 1 s more for a thread that is inside NCCL. After abort() or finish() it does nothing and returns
    /// true.
    bool abort() EXCLUDES(inside_);
    /// Ends the communicator in order, once nothing is in flight: the peers still get their data. Aborts it if they do
    /// not finish in time.
    bool finish() EXCLUDES(inside_);

    /// Returns "remote process exited … (last error of NCCL)".
    [[nodiscard]] std::string error_text(ncclResult_t result) const;

private:
    [[nodiscard]] ncclComm_t take() EXCLUDES(inside_);
    [[nodiscard]] std::optional<ncclResult_t> settle(ncclResult_t result, ddprun::TimePoint deadline) EXCLUDES(inside_);

    const GpuApi api_;
    const std::shared_ptr<GroupDevice> device_;
    const NcclLimits limits_;
    const bool blocks_;
    ddprun::Mutex inside_;                    // held while a thread is in an NCCL call on comm_
    std::atomic<ncclComm_t> comm_ = nullptr;  // null from abort() or finish() on
    std::atomic<bool> given_up_ = false;
};

}  // namespace ddp::detail
