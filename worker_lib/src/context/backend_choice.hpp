#pragma once
// Which backend a job uses. Every rank reports what it was asked for and what it finds on its machine; from all reports
// every rank makes the same decision. Pure, but for what looks at this machine.

#include <string>
#include <string_view>
#include <vector>

#include "worker_lib/src/backend.hpp"

namespace ddp::detail {

/// What one rank finds.
struct BackendReport {
    Backend asked = Backend::Auto;
    std::string host;
    std::string obstacle;       ///< why NCCL cannot run there; empty if it can, and for Backend::Native
    bool gpu_expected = false;  ///< something on the machine suggests a GPU, so that doing without is worth a line
};
[[nodiscard]] std::string encode(const BackendReport& report);
/// Throws Error{System} for text that encode() did not write.
[[nodiscard]] BackendReport decode_report(std::string_view text);

[[nodiscard]] BackendReport report_here(Backend asked, int device);

struct BackendChoice {
    Backend backend = Backend::Native;
    std::string line;  ///< for the user, once per job; empty when there is nothing to say
};

/// By `reports` of all ranks. Auto: NCCL if all ranks can, else native for all. Nccl: never anything else. Throws
/// Error{Unavailable} naming the ranks and hosts that cannot, or Error{Mismatch} if they were asked for different ones.
[[nodiscard]] BackendChoice decide_backend(const std::vector<BackendReport>& reports);

}  // namespace ddp::detail
