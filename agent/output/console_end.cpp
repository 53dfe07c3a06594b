#include "agent/output/console_end.hpp"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "common/exit_codes.hpp"
#include "common/text/number.hpp"

namespace ddprun::agent {
namespace {

constexpr std::chrono::seconds kFailedTimeout{60};  // the user may read the failure in a pager
constexpr std::chrono::seconds kInterruptedTimeout{5};

bool was_interrupted(int exit_code) {
    return exit_code == exit_code::kSignalBase + SIGINT || exit_code == exit_code::kSignalBase + SIGTERM;
}

/// Warns if the last output to stdout was lost. A loss of stderr cannot be reported.
void report_lost_output(const Console& console, std::string_view tag) {
    const int lost_for = console.lost_for(Console::Stream::kOut);
    if (lost_for == 0 || lost_for == EBADF) return;  // EBADF: stdout was closed at the start, which was reported then
    spdlog::warn("{}the end of the output could not be written to stdout: {}", tag, std::strerror(lost_for));
}

}  // namespace

void drain_at_end(Console& console, int exit_code, std::string_view tag) {
    report_lost_output(console, tag);
    if (exit_code == exit_code::kSuccess) {
        console.drain();
        return;
    }
    const auto timeout = was_interrupted(exit_code) ? kInterruptedTimeout : kFailedTimeout;
    const std::size_t lost_bytes = console.drain(timeout);
    pollfd standard_error{STDERR_FILENO, POLLOUT, 0};  // it may be the console that is not read
    if (lost_bytes == 0 || ::poll(&standard_error, 1, 0) != 1) return;
    spdlog::warn("{}the console was not read for {}: the last {} bytes of output are not shown", tag,
                 seconds_text(timeout), lost_bytes);
}

}  // namespace ddprun::agent
