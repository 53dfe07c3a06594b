#include "agent/output/console_end.hpp"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>

#include "common/exit_codes.hpp"

namespace ddprun::agent {
namespace {

constexpr std::chrono::seconds kFailedPatience{60};  // somebody may read the failure in a pager
constexpr std::chrono::seconds kInterruptedPatience{5};

bool was_interrupted(int exit_code) {
    return exit_code == exit_code::kSignalBase + SIGINT || exit_code == exit_code::kSignalBase + SIGTERM;
}

/// What a file did not take was lost at once, not now. What stderr itself has lost can be told to nobody.
void say_what_is_lost(const Console& console, std::string_view tag) {
    const int lost_for = console.lost_for(Console::Stream::kOut);
    if (lost_for == 0) return;
    spdlog::warn("{}the end of the output could not be written to stdout: {}", tag, std::strerror(lost_for));
}

}  // namespace

void drain_at_end(Console& console, int exit_code, std::string_view tag) {
    say_what_is_lost(console, tag);
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
