#pragma once
// WorkerStream: the agent's end of one worker's stdout or stderr. Reads the pipe as it fills and passes the bytes on to
// the log file (unchanged), the tail (for the verdict) and the console (whole lines).

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "agent/output/console.hpp"
#include "agent/output/line_buffer.hpp"
#include "agent/output/log_writer.hpp"
#include "agent/output/tail.hpp"
#include "common/clock.hpp"
#include "common/unique_fd.hpp"

namespace ddprun::agent {

/// Where the bytes of one stream go.
struct Route {
    Console* console = nullptr;  ///< null: not to the console
    Console::Stream stream = Console::Stream::kOut;
    int source = 0;          ///< whose lines they are
    std::string label;       ///< in front of console lines
    LogFile file;            ///< no file: not to a file
    bool keep_tail = false;  ///< remember the last lines
};

class WorkerStream : public std::enable_shared_from_this<WorkerStream> {
public:
    /// `read_end` of a pipe. Call start() once it is held by a shared_ptr.
    WorkerStream(boost::asio::io_context& io, UniqueFd read_end, Route route);

    void start();
    /// Takes what the pipe holds now, without waiting for more.
    void take_available();
    /// The same, then gives out an unfinished last line and closes.
    void finish();

    [[nodiscard]] const Tail& tail() const { return tail_; }
    /// When the latest traceback, or the first of several in a row, was read; only of a stream whose tail is kept.
    [[nodiscard]] const std::optional<TimePoint>& traceback_at() const { return traceback_at_; }

private:
    void wait_readable();
    /// Whoever takes the bytes has enough of them for now.
    [[nodiscard]] bool backlogged() const;
    void wait_for_room();
    /// One read; false when there is nothing to read now or ever.
    bool read_some();
    void deliver(std::string_view bytes);
    void show_rest();
    void remember(std::string_view bytes);

    boost::asio::posix::stream_descriptor pipe_;
    boost::asio::steady_timer timer_;
    Route route_;
    LineBuffer lines_;
    LineBuffer::Sink to_console_;
    Tail tail_;
    std::optional<TimePoint> traceback_at_;
    TimePoint last_traceback_at_;
    bool ended_ = false;
};

}  // namespace ddprun::agent
