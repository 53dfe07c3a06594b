#pragma once
// Communicator: owns one ncclComm_t, connects it and ends it. One thread at a time uses it, as NCCL demands: the one
// that makes it, then that of its DeviceQueue, then the one that ends it. Calls that may not return have threads of
// their own.

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker_lib/src/bootstrap/environment.hpp"
#include "worker_lib/src/cuda/captured_graph.hpp"
#include "worker_lib/src/cuda/group_device.hpp"
#include "worker_lib/src/group/backend.hpp"
#include "worker_lib/src/nccl/api.hpp"
#include "worker_lib/src/nccl/peers.hpp"

namespace ddp::detail {

/// Prints the line on stderr, if that takes it within 1 s, and ends this process with exit_code::kDeviceStuck, without
/// destructors: they would wait for the device.
[[noreturn]] void end_process(const std::string& line);

/// Limits of the backend when it aborts its communicator or ends, or a peer or another group has failed.
struct NcclLimits {
    /// For NCCL and the device to let go of a group that has failed. Then the process ends.
    ddprun::Duration abort_timeout = std::chrono::seconds(1);
    /// For work of the program and of other groups on the device, for which the abort of a group waits, in addition.
    ddprun::Duration program_timeout = std::chrono::seconds(10);
    ddprun::Duration finish_timeout = std::chrono::seconds(5);  ///< for the peers to finish their communicators too
    /// For an operation to end by itself after the process of a peer has ended: the peer may have sent its part before.
    ddprun::Duration loss_timeout = std::chrono::seconds(2);
    /// For an operation to end by itself after another group of the device has failed.
    ddprun::Duration shared_timeout = std::chrono::milliseconds(500);
    std::function<void(const std::string& line)> end_process = detail::end_process;

    /// Returns how long to wait for calls that are not the abort of a failed group: no longer than kMaxCallWait,
    /// however long an abort may take.
    [[nodiscard]] ddprun::Duration call_wait() const { return std::min<ddprun::Duration>(abort_timeout, kMaxCallWait); }
    static constexpr auto kMaxCallWait = std::chrono::seconds(1);

    /// Returns how long after the failure of a group its operations fail, or the process ends.
    [[nodiscard]] ddprun::Duration longest_abort() const { return 3 * abort_timeout + program_timeout; }
};
/// Returns the limits with the abort_timeout that the user has set. Throws Error{Environment}.
[[nodiscard]] NcclLimits read_limits(const Variables& variables);

/// Returns whether to make non-blocking communicators with this version of NCCL: from 2.27 on. Older ones have faults
/// in that mode (table in docs/design/013). NCCL_COMM_BLOCKING, which NCCL reads as well, overrides the version.
/// setting   value of NCCL_COMM_BLOCKING, or nothing
[[nodiscard]] bool starts_nonblocking(int nccl_version, const std::optional<std::string>& setting);

/// Returns the code of an error of NCCL.
[[nodiscard]] ErrorCode error_code_of(ncclResult_t result);

class Communicator {
public:
    /// Connects to the other holders of the unique ids. Collective. Throws Error{Timeout} at `deadline`,
    /// Error{PeerLost} when a process of `peers` ends, Error{System} with NCCL's text.
    Communicator(const GpuApi& api, const GroupSpec& spec, std::shared_ptr<GroupDevice> device,
                 std::vector<ncclUniqueId> ids, const Peers& peers, ddprun::TimePoint deadline,
                 const NcclLimits& limits);
    ~Communicator();  ///< aborts the communicator, if it was neither finished nor aborted
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;

    [[nodiscard]] ncclComm_t get() const { return comm_; }
    /// Returns the graphs with operations of this communicator, which it frees before it ends: NCCL would wait for
    /// that for ever. Any thread.
    [[nodiscard]] CapturedGraphs& graphs() { return graphs_; }
    /// Returns ncclInProgress while NCCL is launching a call, else the error that it has met; ncclSuccess: none.
    [[nodiscard]] ncclResult_t state() const;
    /// Has NCCL stop the kernels of the communicator, and frees it. May never return. After abort() or finish() it does
    /// nothing.
    void abort();
    /// Ends the communicator, once nothing is in flight. `in_order`: the peers still get their data; if they do not
    /// finish in time, it is aborted. Else it is aborted at once. Bounded by the limits.
    void finish(bool in_order);
    /// Returns "remote process exited … (last error of NCCL)".
    [[nodiscard]] std::string error_text(ncclResult_t result) const;

private:
    const GpuApi api_;
    const std::shared_ptr<GroupDevice> device_;
    const NcclLimits limits_;
    const std::string earlier_error_;  // NCCL's last error before this communicator
    CapturedGraphs graphs_;
    ncclComm_t comm_ = nullptr;  // null from abort() or finish() on
};

}  // namespace ddp::detail
