#pragma once
// The choice of a job's backend: every rank reports the requested backend and whether its machine can run NCCL, and
// every rank derives the same decision from all reports. Pure, except for report_here().

#include <string>
#include <string_view>
#include <vector>

#include "worker_lib/src/group/backend.hpp"

namespace ddp::detail {

/// The backend that one rank requests, and the state of its machine.
struct BackendReport {
    Backend asked = Backend::Auto;
    std::string host;
    std::string obstacle;       ///< why NCCL cannot run there; empty if it can, and for Backend::Native
    bool gpu_expected = false;  ///< the machine seems to have a GPU, so that training without it deserves a line
    std::string gpu = {};       ///< NcclAvailability::gpu
    std::string uuid = {};      ///< NcclAvailability::uuid
    int device = -1;            ///< index of the device that the rank has to use; not part of encode()
};
/// Returns the report as text for the store.
[[nodiscard]] std::string encode(const BackendReport& report);
/// Returns the report that encode() wrote. Throws Error{System} for other text.
[[nodiscard]] BackendReport decode_report(std::string_view text);

/// Examines this machine and returns this rank's report.
/// device   index; -1: that of the local rank
[[nodiscard]] BackendReport report_here(Backend asked, int device, int local_rank);

/// The decision for the job, the same on every rank.
struct BackendChoice {
    Backend backend = Backend::Native;
    std::string line;  ///< for the user, printed once per job; empty if the choice is expected
};

/// Decides from the reports of all ranks. A rank cannot use NCCL if another one has the same GPU. Auto: NCCL if all
/// ranks can, else native for all. Nccl: NCCL, or throws Error{Unavailable} naming the ranks and hosts that cannot.
/// Throws Error{Mismatch} if ranks were asked for different backends.
[[nodiscard]] BackendChoice decide_backend(std::vector<BackendReport> reports);

}  // namespace ddp::detail
