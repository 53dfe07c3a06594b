#include "agent/output/console.hpp"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "common/clock.hpp"
#include "common/exit_codes.hpp"
#include "common/text/number.hpp"

namespace ddprun::agent {
namespace {

bool same_file(int a, int b) {
    struct stat one {};
    struct stat other {};
    return ::fstat(a, &one) == 0 && ::fstat(b, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

constexpr std::chrono::seconds kFailedTimeout{60};  // the user may read the failure in a pager
constexpr std::chrono::seconds kInterruptedTimeout{5};

bool was_interrupted(int exit_code) {
    return exit_code == exit_code::kSignalBase + SIGINT || exit_code == exit_code::kSignalBase + SIGTERM;
}

/// Warns if the last output to stdout was lost. A loss of stderr cannot be reported.
void report_lost_output(const Console& console, std::string_view tag) {
    const int lost_for = console.lost_for(Console::Stream::kOut);
    if (lost_for == 0) return;
    spdlog::warn("{}the end of the output could not be written to stdout: {}", tag, std::strerror(lost_for));
}

}  // namespace

Console::Console(boost::asio::io_context& io, int out_fd, int err_fd) {
    outputs_[0] = std::make_shared<Output>(io, out_fd);
    outputs_[1] = same_file(out_fd, err_fd) ? outputs_[0] : std::make_shared<Output>(io, err_fd);
}

void Console::append(Stream stream, int source, const Segment& segment, std::string_view label) {
    if (segment.text.empty()) return;
    Output& to = output(stream);
    std::string_view text = segment.text;
    const bool continues = to.open_source == source && to.open_stream == stream;
    if (to.line_open && !continues && text.front() != '\r') to.sink.append("\n");
    if (segment.starts_line && !label.empty()) {
        if (text.front() == '\r') {
            to.sink.append("\r");
            text.remove_prefix(1);
        }
        to.sink.append(label);
    }
    to.sink.append(text);
    to.open_source = source;
    to.open_stream = stream;
    to.line_open = segment.text.back() != '\n' && segment.text.back() != '\r';
}

void Console::write(Stream stream, int source, const Segment& segment, std::string_view label) {
    append(stream, source, segment, label);
    push(stream);
}

bool Console::backlogged() const {
    return std::ranges::any_of(outputs_, [](const auto& p) { return p->sink.waiting_bytes() > kBacklogBytes; });
}

std::size_t Console::drain(std::chrono::milliseconds timeout) {
    using std::chrono::milliseconds;
    const TimePoint start = Clock::now();
    std::size_t left_bytes = 0;
    const bool shared = outputs_[0] == outputs_[1];  // a terminal, or 2>&1: it is waited for once
    for (const int stream : {1, 0}) {                // stderr first: it has the verdict
        if (shared && stream == 0) continue;
        const auto& p = outputs_[static_cast<std::size_t>(stream)];
        const auto left = timeout - std::chrono::duration_cast<milliseconds>(Clock::now() - start);
        p->sink.drain(timeout < milliseconds(0) ? timeout : std::max(left, milliseconds(0)));
        left_bytes += p->sink.waiting_bytes();
    }
    return left_bytes;
}

std::chrono::seconds console_timeout(int exit_code) {
    return was_interrupted(exit_code) ? kInterruptedTimeout : kFailedTimeout;
}

void drain_at_end(Console& console, int exit_code, std::string_view tag, std::chrono::milliseconds waited) {
    report_lost_output(console, tag);
    if (exit_code == exit_code::kSuccess) {
        console.drain();
        return;
    }
    const std::chrono::milliseconds timeout = console_timeout(exit_code);
    const std::size_t lost_bytes = console.drain(std::max(std::chrono::milliseconds(0), timeout - waited));
    pollfd standard_error{STDERR_FILENO, POLLOUT, 0};  // it may be the console that is not read
    if (lost_bytes == 0 || ::poll(&standard_error, 1, 0) != 1) return;
    spdlog::warn("{}the console was not read for {}, so ddprun ends without the last {} bytes of output", tag,
                 seconds_text(timeout), lost_bytes);
}

}  // namespace ddprun::agent
