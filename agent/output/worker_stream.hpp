#pragma once
// WorkerStream: the agent's end of one worker's stdout or stderr. Reads the pipe as it fills and passes the bytes on to
// the log file (unchanged), the filter, the tail (for the verdict) and the console (whole lines). It stops reading
// while too many bytes wait for the console or the log files; the limits are for all workers together
// (Console::kBacklogBytes, LogWriter::kBacklogBytes). Owned by Worker; one thread.

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "agent/output/console.hpp"
#include "agent/output/line_buffer.hpp"
#include "agent/output/line_filter.hpp"
#include "agent/output/log_writer.hpp"
#include "agent/output/pseudo_terminal.hpp"
#include "agent/output/tail.hpp"
#include "agent/output/time_stamp.hpp"
#include "common/clock.hpp"
#include "common/system/unique_fd.hpp"
#include "common/text/pattern.hpp"

namespace ddprun::agent {

/// The destinations of the bytes of one stream.
struct Route {
    Console* console = nullptr;  ///< null: not to the console
    Console::Stream stream = Console::Stream::kOut;
    int source = 0;          ///< the local rank that writes the lines
    std::string label;       ///< in front of console lines
    LogFile file;            ///< no file: not to a file
    UniqueFd own_file = {};  ///< the worker writes to this file itself; then nothing else gets its bytes
    std::optional<PseudoTerminal> terminal = {};  ///< the worker gets this in place of a pipe
    std::optional<LineFilter> filter = {};        ///< copies lines to a file of all ranks
    bool keep_tail = false;                       ///< keep the last lines
    std::optional<Pattern> shown = {};            ///< only lines with a match go to the console; absent: all
    std::optional<Pattern> hidden = {};           ///< … and no line with a match
    bool timestamps = false;                      ///< lines begin with the time of day, but for those of the tail
    bool shows_prompts = false;                   ///< the console shows a line that stays without its end
};

class WorkerStream : public std::enable_shared_from_this<WorkerStream> {
public:
    /// Takes over the `read_end` of a pipe or pseudo terminal. Call start() once a shared_ptr owns the stream.
    WorkerStream(boost::asio::io_context& io, UniqueFd read_end, Route route);
    ~WorkerStream();
    WorkerStream(const WorkerStream&) = delete;
    WorkerStream& operator=(const WorkerStream&) = delete;

    void start();
    /// Has a prompt's line end when the worker, which `worker` describes, has got the answer.
    void follow_answers(ReadCheck worker) { prompt_.worker = std::move(worker); }
    /// Gives the worker's pseudo terminal the size of the console less the label. Returns whether that has changed it;
    /// false if the worker writes to a pipe.
    bool fit_terminal();
    /// Reads what the pipe contains now, without waiting for more.
    void take_available();
    /// Does the same, then passes on an unfinished last line and closes the pipe and the log file.
    void finish();

    [[nodiscard]] const Tail& tail() const { return tail_; }
    /// Returns when the latest traceback, or the first of several in a row, was read; needs Route::keep_tail.
    [[nodiscard]] const std::optional<TimePoint>& traceback_at() const { return traceback_at_; }

private:
    /// The wait for the end of a line that may be a prompt.
    struct Prompt {
        boost::asio::steady_timer timer;
        bool is_awaited = false;                         ///< the timer runs
        bool is_shown = false;                           ///< the console has the beginning of the line
        ReadCheck worker = {};                           ///< empty: it is not known whether it waits for an answer
        TimePoint looked_at = {};                        ///< when the worker was looked at last
        std::optional<TimePoint> unfinished_since = {};  ///< the console lacks the beginning of a line since then
    };

    void wait_readable();
    void unwatch();
    void take_turn();
    void push();
    void wait_for_more(std::chrono::microseconds time);
    /// Returns whether the console or the log file should get no more bytes for now.
    [[nodiscard]] bool backlogged() const;
    void wait_for_room(std::chrono::milliseconds retry, std::chrono::milliseconds waited = {});
    /// Reads once. Returns how many bytes; 0: there is nothing to read now or ever.
    std::size_t read_some();
    void deliver(std::string_view bytes);
    void pass_on_rest();
    /// Shows an unfinished line that has waited for its end long enough, and waits for that moment otherwise.
    void show_prompt();
    void look_at_worker();
    void remember(std::string_view bytes);
    /// Sets the beginning of console lines, which contains the time. Returns the time that lines begin with; empty:
    /// none.
    std::string_view begin_lines();

    UniqueFd pipe_;
    boost::asio::posix::stream_descriptor events_;  ///< the same descriptor while it is watched, which pipe_ owns
    boost::asio::steady_timer timer_;
    Prompt prompt_;
    Route route_;
    LineBuffer lines_;
    bool hides_line_ = false;  ///< the latest line does not go to the console
    LineBuffer::Sink to_console_;
    TimeStamp time_stamp_;
    LineStamper file_lines_;
    std::string line_start_;  ///< of console lines
    Tail tail_;
    std::optional<TimePoint> traceback_at_;
    TimePoint last_traceback_at_;
    TimePoint last_turn_{};  ///< its end
    bool collects_ = false;  ///< waits for more of what a worker prints in small pieces
    bool ended_ = false;
};

}  // namespace ddprun::agent
