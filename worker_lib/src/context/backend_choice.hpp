#pragma once
// Choosing the backend of a job: every rank reports which one it was asked for and what it finds on its machine, and
// from all reports every rank makes the same decision. Pure, except for report_here().

#include <string>
#include <string_view>
#include <vector>

#include "worker_lib/src/group/backend.hpp"

namespace ddp::detail {

/// What one rank was asked for and finds.
struct BackendReport {
    Backend asked = Backend::Auto;
    std::string host;
    std::string obstacle;       ///< why NCCL cannot run there; empty if it can, and for Backend::Native
    bool gpu_expected = false;  ///< the machine seems to have a GPU, so that training without it deserves a line
};
/// Returns the report as text for the store.
[[nodiscard]] std::string encode(const BackendReport& report);
/// Returns the report that encode() wrote. Throws Error{System} for other text.
[[nodiscard]] BackendReport decode_report(std::string_view text);

/// Returns the report of this rank; it looks at this machine.
[[nodiscard]] BackendReport report_here(Backend asked, int device);

struct BackendChoice {
    Backend backend = Backend::Native;
    std::string line;  ///< for the user, once per job; empty when there is nothing to say
};

/// Decides from the reports of all ranks. Auto: NCCL if all ranks can, else native for all. Nccl: NCCL, or throws
/// Error{Unavailable} naming the ranks and hosts that cannot. Throws Error{Mismatch} if ranks were asked for different
/// backends.
[[nodiscard]] BackendChoice decide_backend(const std::vector<BackendReport>& reports);

}  // namespace ddp::detail
