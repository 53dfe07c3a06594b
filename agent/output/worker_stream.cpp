#include "agent/output/worker_stream.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

#include "common/text/escape.hpp"

namespace ddprun::agent {
namespace {

constexpr std::size_t kReadBytes = 64u << 10;
/// The maximum number of consecutive reads: a worker that writes faster than the agent reads must not occupy it.
constexpr int kMaxReads = 64;
/// The same for the reads of one event: other workers wait for their turn.
constexpr int kMaxReadsPerTurn = 4;
/// A worker that is readable again so soon, and with so little, prints many short lines. Then the stream lets some
/// collect before it reads, because a switch between processes for each line takes longer than the line. It goes on to
/// do so while that gives at least as much, and less than half of a pipe.
constexpr std::size_t kLittleBytes = 4096;
constexpr std::size_t kMuchBytes = 32u << 10;
constexpr std::chrono::microseconds kSoon{100};
constexpr std::chrono::microseconds kCollectTime{200};
/// A console that is read has room again soon; one that is stopped (Ctrl-S) may stay full for hours.
constexpr std::chrono::milliseconds kFirstRetry{1};
constexpr std::chrono::milliseconds kMaxRetry{20};
/// A worker that has waited for its log file for this time is reported.
constexpr std::chrono::milliseconds kSlowAfter{3000};
/// Python prints exceptions that caused each other one after the other: tracebacks within this time are one failure.
constexpr std::chrono::seconds kOneFailure{1};
/// A line that has no end after this time is a prompt: a person should see it.
constexpr std::chrono::milliseconds kPromptDelay{100};
/// A program that buffers blocks writes multiples of this, which end anywhere in a line: that is no prompt.
constexpr std::size_t kStdioBlock = 1024;

LineBuffer::Progress progress_mode(const Route& route) {
    const bool terminal = route.console != nullptr && route.console->is_terminal(route.stream);
    return terminal ? LineBuffer::Progress::kShow : LineBuffer::Progress::kHold;
}

/// Returns whether the patterns keep a line from the console.
bool is_hidden(const Route& route, std::string_view line) {
    if (!route.shown && !route.hidden) return false;
    if (line.ends_with('\n')) line.remove_suffix(1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with('\r')) line.remove_prefix(1);
    std::string plain;  // patterns match what a person sees
    if (line.find('\x1b') != line.npos) line = plain = without_sequences(line);
    return (route.shown && !route.shown->matches(line)) || (route.hidden && route.hidden->matches(line));
}

}  // namespace

WorkerStream::WorkerStream(boost::asio::io_context& io, UniqueFd read_end, Route route)
    : pipe_(std::move(read_end)),
      events_(io),
      timer_(io),
      prompt_{boost::asio::steady_timer(io)},
      route_(std::move(route)),
      lines_(progress_mode(route_)) {
    line_start_ = route_.label;
    ::fcntl(pipe_.get(), F_SETFL, ::fcntl(pipe_.get(), F_GETFL) | O_NONBLOCK);  // the worker's end is another open file
    to_console_ = [this](const Segment& segment) {
        prompt_.unfinished_since.reset();
        prompt_.is_shown = false;
        if (segment.starts_line) hides_line_ = is_hidden(route_, segment.text);
        if (hides_line_) return;
        route_.console->append(route_.stream, route_.source, segment, line_start_);
    };
}

WorkerStream::~WorkerStream() { unwatch(); }

void WorkerStream::start() { wait_readable(); }

void WorkerStream::wait_readable() {
    boost::system::error_code unwatchable;  // no memory or watch is left: the stream is read from time to time
    if (!events_.is_open()) events_.assign(pipe_.get(), unwatchable);
    if (unwatchable) return wait_for_more(kMaxRetry);
    events_.async_wait(boost::asio::posix::descriptor_base::wait_read,
                       [self = shared_from_this()](const boost::system::error_code& error) {
                           if (error || self->ended_) return;
                           self->take_turn();
                       });
}

/// Reads and passes on what is there, then waits for more.
void WorkerStream::take_turn() {
    const bool soon = Clock::now() - last_turn_ < kSoon;
    // The less a worker is ahead of the others, the fewer lines are held.
    const bool folds = route_.console != nullptr && route_.console->folds();
    std::size_t bytes = 0;
    for (int i = 0; i < (folds ? 1 : kMaxReadsPerTurn); ++i) {
        const std::size_t count = read_some();
        bytes += count;
        if (count < kLittleBytes || backlogged()) break;
    }
    push();
    if (ended_) return;
    last_turn_ = Clock::now();
    collects_ = collects_ ? bytes >= kLittleBytes && bytes < kMuchBytes : soon && bytes < kLittleBytes;
    if (backlogged())
        wait_for_room(kFirstRetry);
    else if (collects_ && !folds)
        wait_for_more(kCollectTime);
    else
        wait_readable();
}

void WorkerStream::unwatch() {
    if (events_.is_open()) events_.release();
}

void WorkerStream::push() {
    if (route_.console != nullptr) route_.console->push(route_.stream);
}

/// Lets the worker print more before it is read again. A watched pipe would wake this process for each of its writes.
void WorkerStream::wait_for_more(std::chrono::microseconds time) {
    unwatch();
    timer_.expires_after(time);
    timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
        if (!error && !self->ended_) self->take_turn();
    });
}

bool WorkerStream::backlogged() const {
    return (route_.console != nullptr && route_.console->backlogged()) || route_.file.backlogged() ||
           (route_.filter && route_.filter->backlogged());
}

/// Waits until the console and the disk keep up. The worker meanwhile waits in its own write(2), as without an agent.
void WorkerStream::wait_for_room(std::chrono::milliseconds retry, std::chrono::milliseconds waited) {
    timer_.expires_after(retry);
    timer_.async_wait([self = shared_from_this(), retry, waited](const boost::system::error_code& error) {
        if (error || self->ended_) return;
        if (!self->backlogged()) return self->wait_readable();
        const bool is_slow = waited < kSlowAfter && waited + retry >= kSlowAfter;
        if (is_slow && self->route_.file.backlogged()) self->route_.file.report_slow();
        self->wait_for_room(std::min(2 * retry, kMaxRetry), waited + retry);
    });
}

std::size_t WorkerStream::read_some() {
    std::array<char, kReadBytes> buffer;
    const ssize_t count = ::read(pipe_.get(), buffer.data(), buffer.size());
    if (count > 0) {
        deliver({buffer.data(), static_cast<std::size_t>(count)});
        return static_cast<std::size_t>(count);
    }
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    pass_on_rest();  // end-of-file, or EIO from a pseudo terminal
    ended_ = true;
    return 0;
}

bool WorkerStream::fit_terminal() {
    if (ended_ || route_.console == nullptr || !route_.console->is_terminal(route_.stream)) return false;
    begin_lines();
    return resize(pipe_.get(), room_behind(line_start_, route_.console->window_size(route_.stream)));
}

void WorkerStream::take_available() {
    for (int i = 0; i < kMaxReads && !ended_ && read_some() > 0; ++i) {
    }
    push();
}

void WorkerStream::finish() {
    take_available();
    pass_on_rest();
    route_.file.close();
    ended_ = true;
    unwatch();
    pipe_.reset();
    timer_.cancel();
    prompt_.timer.cancel();
}

void WorkerStream::deliver(std::string_view bytes) {
    if (route_.keep_tail) remember(bytes);
    const std::string_view stamp = begin_lines();
    if (route_.timestamps && route_.file)
        route_.file.write(file_lines_.stamped(bytes, stamp));
    else
        route_.file.write(bytes);
    if (route_.filter) route_.filter->feed(bytes, stamp);
    if (route_.console == nullptr) return;
    const bool whole_lines = !route_.shown && !route_.hidden && !route_.console->folds();
    lines_.feed(bytes, to_console_, whole_lines ? LineBuffer::Unit::kLines : LineBuffer::Unit::kLine);
    if (!route_.shows_prompts || !lines_.has_rest()) return;
    if (bytes.size() % kStdioBlock == 0) return prompt_.unfinished_since.reset();
    if (!prompt_.unfinished_since) prompt_.unfinished_since = Clock::now();
    if (!prompt_.is_awaited) show_prompt();
}

void WorkerStream::show_prompt() {
    prompt_.is_awaited = false;
    if (!prompt_.unfinished_since || ended_) return;
    // The rest of a line that was not read yet is no prompt.
    if (!prompt_.is_shown && backlogged()) prompt_.unfinished_since = Clock::now();
    const TimePoint due = *prompt_.unfinished_since + kPromptDelay;
    if (prompt_.is_shown || Clock::now() >= due) {  // what is typed after a prompt is shown at once
        begin_lines();
        lines_.flush(to_console_);
        prompt_.is_shown = true;
        look_at_worker();
        return route_.console->push(route_.stream);
    }
    prompt_.is_awaited = true;
    prompt_.timer.expires_at(due);
    prompt_.timer.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
        if (!error) self->show_prompt();
    });
}

/// Notes whether the worker waits for an answer to the line that is shown; not more often than prompts are shown, since
/// that looks at all processes below a worker, which may print a dot for each of its steps.
void WorkerStream::look_at_worker() {
    if (!prompt_.worker || !prompt_.is_shown || ended_) return;
    const TimePoint now = Clock::now();
    if (now >= prompt_.looked_at + kPromptDelay) {
        prompt_.looked_at = now;
        if (prompt_.worker() == TerminalRead::kWaiting)
            route_.console->note_prompt(route_.stream, route_.source, prompt_.worker);
        return;
    }
    prompt_.timer.expires_at(prompt_.looked_at + kPromptDelay);
    prompt_.timer.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
        if (!error) self->look_at_worker();
    });
}

/// Passes an unfinished last line on to the filter and to the console.
void WorkerStream::pass_on_rest() {
    if (route_.filter) route_.filter->finish();
    if (route_.console == nullptr) return;
    begin_lines();
    lines_.flush(to_console_);
    route_.console->close(route_.stream, route_.source);
    route_.console->push(route_.stream);
}

std::string_view WorkerStream::begin_lines() {
    if (!route_.timestamps) return {};
    const std::string_view stamp = time_stamp_.at(std::chrono::system_clock::now());
    line_start_.assign(stamp).append(route_.label);
    return stamp;
}

void WorkerStream::remember(std::string_view bytes) {
    const std::size_t before = tail_.tracebacks();
    tail_.append(bytes);
    if (tail_.tracebacks() == before) return;
    const TimePoint now = Clock::now();
    if (!traceback_at_ || now - last_traceback_at_ > kOneFailure) traceback_at_ = now;
    last_traceback_at_ = now;
}

}  // namespace ddprun::agent
