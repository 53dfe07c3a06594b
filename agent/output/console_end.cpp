#include "agent/output/console_end.hpp"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

#include "common/exit_codes.hpp"

namespace ddprun::agent {
namespace {

constexpr std::chrono::seconds kFailedPatience{60};  // somebody may read the failure in a pager
constexpr std::chrono::seconds kInterruptedPatience{5};

bool was_interrupted(int exit_code) {
    return exit_code == exit_code::kSignalBase + SIGINT || exit_code == exit_code::kSignalBase + SIGTERM;
}

}  // namespace

void drain_at_end(Console& console, int exit_code, std::string_view tag) {
    if (exit_code == exit_code::kSuccess) {
        console.drain();
        return;
    }
    const auto patience = was_interrupted(exit_code) ? kInterruptedPatience : kFailedPatience;
    const std::size_t lost_bytes = console.drain(patience);
    pollfd standard_error{STDERR_FILENO, POLLOUT, 0};  // it may be what nobody reads
    if (lost_bytes == 0 || ::poll(&standard_error, 1, 0) != 1) return;
    spdlog::warn("{}nobody has read the console for {} s: the last {} bytes of output are not shown", tag,
                 patience.count(), lost_bytes);
}

}  // namespace ddprun::agent
