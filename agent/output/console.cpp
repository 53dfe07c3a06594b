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
#include "common/system/standard_fds.hpp"
#include "common/text/number.hpp"

namespace ddprun::agent {
namespace {

bool same_file(int a, int b) {
    struct stat one {};
    struct stat other {};
    return ::fstat(a, &one) == 0 && ::fstat(b, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

/// The interval at which held lines are looked at, so that a line is late by this at most.
constexpr std::chrono::milliseconds kFoldTick{50};
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

Console::Console(boost::asio::io_context& io, int out_fd, int err_fd, SharedLines lines)
    : io_(io), lines_(std::move(lines)) {
    outputs_[0] = std::make_shared<Output>(io, out_fd, lines_.of(0));
    outputs_[1] = same_file(out_fd, err_fd) ? outputs_[0] : std::make_shared<Output>(io, err_fd, lines_.of(1));
}

Console::Folding::Folding(Console& console)
    : folders{LineFolder([&](const LineFolder::Folded& line) { console.append_folded(Stream::kOut, line); }),
              LineFolder([&](const LineFolder::Folded& line) { console.append_folded(Stream::kErr, line); })},
      timer(console.io_) {}

void Console::fold(FoldLabel label, bool timestamps) {
    if (!folding_) folding_ = std::make_unique<Folding>(*this);
    release_folded();
    folding_->label = std::move(label);
    folding_->timestamps = timestamps;
}

void Console::open(Stream stream, int source) {
    if (LineFolder* const lines = folder(stream)) lines->open(source);
}

void Console::close(Stream stream, int source) {
    if (LineFolder* const lines = folder(stream)) lines->close(source);
}

LineFolder* Console::folder(Stream stream) const {
    return folding_ ? &folding_->folders[static_cast<std::size_t>(stream)] : nullptr;
}

/// Lets a whole line wait for equal ones of other workers, if lines are folded. Returns false if `segment` is to be
/// written now; then the lines that belong in front of it have been written.
bool Console::take_to_fold(Stream stream, int source, const Segment& segment) {
    LineFolder* const lines = folder(stream);
    if (lines == nullptr) return false;
    if (source == kAgent) {
        release_folded();
        return false;
    }
    const bool is_whole = segment.starts_line && segment.text.front() != '\r' && segment.text.back() == '\n';
    if (!is_whole) {
        for (const Stream each : {Stream::kOut, Stream::kErr}) {  // a prompt follows the traceback
            folder(each)->release_lines_of(source);
            push(each);
        }
        return false;
    }
    lines->add(source, segment.text, Clock::now());
    if (lines->holds_lines() && !folding_->armed) wait_for_due_lines();
    return true;
}

void Console::append_folded(Stream stream, const LineFolder::Folded& line) {
    std::string start;
    if (folding_->timestamps) {
        const auto age = std::chrono::duration_cast<std::chrono::system_clock::duration>(Clock::now() - line.since);
        start = folding_->time_stamp.at(std::chrono::system_clock::now() - age);
    }
    start += folding_->label(line.sources);
    append_now(stream, line.sources.front(), {line.text}, start);
}

void Console::release_folded() {
    for (const Stream stream : {Stream::kOut, Stream::kErr}) {
        LineFolder* const lines = folder(stream);
        if (lines == nullptr || !lines->holds_lines()) continue;
        lines->release_all();
        push(stream);
    }
}

void Console::wait_for_due_lines() {
    folding_->armed = true;
    folding_->timer.expires_after(kFoldTick);
    folding_->timer.async_wait([this](const boost::system::error_code& error) {
        if (error) return;  // the console was destroyed
        folding_->armed = false;
        bool some_are_held = false;
        for (const Stream stream : {Stream::kOut, Stream::kErr}) {
            folder(stream)->release_due(Clock::now());
            push(stream);
            some_are_held = some_are_held || folder(stream)->holds_lines();
        }
        if (some_are_held) wait_for_due_lines();
    });
}

void Console::append(Stream stream, int source, const Segment& segment, std::string_view label) {
    if (segment.text.empty() || take_to_fold(stream, source, segment)) return;
    append_now(stream, source, segment, label);
}

bool Console::Output::is_open_line_of(Stream stream, int source) const {
    return line_open && open_source == source && open_stream == stream;
}

/// Returns whether the open line is a prompt that the user has answered. `continues`: its worker goes on with it.
bool Console::Output::was_answered(bool continues) const {
    return prompted && line_open && (continues || prompted() == TerminalRead::kNone);
}

void Console::note_prompt(Stream stream, int source, ReadCheck worker) {
    Output& to = output(stream);
    if (to.is_open_line_of(stream, source)) to.prompted = std::move(worker);
}

void Console::append_now(Stream stream, int source, const Segment& segment, std::string_view label) {
    Output& to = output(stream);
    std::string_view text = segment.text;
    const bool continues = to.open_source == source && to.open_stream == stream;
    const bool lost = to.line_open && to.sink.lost_its_line();
    bool starts_line = segment.starts_line || !continues || lost;
    if (starts_line && !segment.starts_line && text == "\n") return;  // the end of a line that others have ended
    if (to.was_answered(!starts_line) || lost) {
        to.line_open = false;
        starts_line = true;
    }
    if (to.prompted) to.prompted = nullptr;
    if (to.line_open && starts_line && text.front() != '\r') to.sink.append("\n");
    if (starts_line && !label.empty()) {
        if (text.front() == '\r') {
            to.sink.append("\r");
            text.remove_prefix(1);
        }
        to.sink.append(label);
    }
    to.sink.append_lines(text, label);
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
    release_folded();
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

void write_block(Console& console, std::string_view lines, bool timestamps) {
    const std::string stamp(timestamps ? TimeStamp().at(std::chrono::system_clock::now()) : "");
    const std::string text = LineStamper().stamped(lines, stamp);
    console.write(Console::Stream::kErr, Console::kAgent, {text});
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
    if (lost_bytes == 0 || !stderr_has_room()) return;
    spdlog::warn("{}the console was not read for {}, so ddprun ends without the last {} bytes of output", tag,
                 seconds_text(timeout), lost_bytes);
}

}  // namespace ddprun::agent
