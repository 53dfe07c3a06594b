#pragma once
// Communicator: owns one ncclComm_t and keeps NCCL's rules for it: one thread inside at a time, every step of a
// non-blocking communicator polled to its end, abort at most once and never waited for without bound.

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "worker_lib/src/backend.hpp"
#include "worker_lib/src/nccl/nccl_api.hpp"

namespace ddp::detail {

/// How long the backend waits for NCCL when it gives up or ends.
struct NcclLimits {
    ddprun::Duration abort_patience = std::chrono::seconds(10);
    ddprun::Duration finish_patience = std::chrono::seconds(5);  ///< for the peers to end theirs too
};

/// Whether NCCL of this version can be trusted to start a communicator without blocking. 2.26 hangs in that mode
/// (https://github.com/pytorch/pytorch/issues/153960): its communicators are made blocking, on a thread that we can
/// leave behind.
/// NCCL_COMM_BLOCKING, which NCCL reads as well, has the last word.
/// setting   its value, or nothing
[[nodiscard]] bool starts_nonblocking(int nccl_version, const std::optional<std::string>& setting);

class Communicator {
public:
    /// Collective: connects to the other holders of `id`. Throws Error{Timeout} at `deadline`, Error{System} with
    /// NCCL's words.
    Communicator(const GpuApi& api, const GroupSpec& spec, int device, const ncclUniqueId& id,
                 ddprun::TimePoint deadline, const NcclLimits& limits);
    ~Communicator();  ///< aborts it, if it was neither finished nor aborted
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;

    /// Makes one call on the communicator and waits until NCCL has taken it in, that is: until its kernel is on the
    /// stream. ncclInProgress: `deadline` passed first. Nothing: the communicator has been given up or aborted, before
    /// or meanwhile.
    using Call = std::function<ncclResult_t(ncclComm_t)>;
    [[nodiscard]] std::optional<ncclResult_t> call(const Call& function, ddprun::TimePoint deadline);

    /// Whether call() may stay in NCCL past its deadline, until the peers come or the communicator is aborted.
    [[nodiscard]] bool may_block() const { return blocks_; }

    /// Lets call() come back at once, now and later: the communicator is to be aborted. Does not wait.
    void give_up() { given_up_ = true; }

    /// An error that NCCL met in the background; ncclSuccess when there is none, no communicator any more, or another
    /// thread inside. Never waits.
    [[nodiscard]] ncclResult_t async_error();

    /// Ends all operations in flight and frees the communicator. False: that did not return in limits.abort_patience,
    /// and the device may still be writing to buffers. Only the first call counts; the next ones return true.
    bool abort();
    /// The orderly end, once nothing is in flight: lets the peers get what they still miss; aborts if they do not end
    /// in time.
    bool finish();

    /// "remote process exited … (last error of NCCL)".
    [[nodiscard]] std::string error_text(ncclResult_t result) const;

private:
    [[nodiscard]] ncclComm_t take();
    [[nodiscard]] std::optional<ncclResult_t> settle(ncclResult_t result, ddprun::TimePoint deadline);

    const GpuApi api_;
    const int device_;
    const NcclLimits limits_;
    const bool blocks_;
    std::mutex inside_;                       // held while a thread is in an NCCL call on comm_
    std::atomic<ncclComm_t> comm_ = nullptr;  // null from abort() or finish() on
    std::atomic<bool> given_up_ = false;
};

}  // namespace ddp::detail
