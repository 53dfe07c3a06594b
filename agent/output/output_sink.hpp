#pragma once
// OutputSink: writes text to an open file without waiting for it, except in drain(). Lines stay whole although several
// processes (the emulated nodes of one machine) write to the same pipe or terminal: a pipe takes a write of up to
// PIPE_BUF bytes whole or not at all, and a larger one whole if it has the room. So a write contains whole lines up to
// that size. A process that needs several writes for one line holds a lock meanwhile. Owned by Console; one thread.

#include <sys/ioctl.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "agent/output/shared_lines.hpp"
#include "common/clock.hpp"

namespace ddprun::agent {

class OutputSink {
public:
    /// `fd` stays open while the sink lives. `line`: the latest line of all processes that write there.
    OutputSink(boost::asio::io_context& io, int fd, SharedLine line = {});
    OutputSink(const OutputSink&) = delete;
    OutputSink& operator=(const OutputSink&) = delete;

    [[nodiscard]] bool is_terminal() const { return terminal_; }
    /// Returns the size of that terminal; zeros: it is unknown.
    [[nodiscard]] winsize window_size() const;
    [[nodiscard]] std::size_t waiting_bytes() const { return queue_.size() - written_; }

    /// Returns the errno with which the latest text could not be written (a full disk); 0: it was written, or its
    /// reader has closed the pipe, which is the reader's choice.
    [[nodiscard]] int lost_for() const { return broken_ ? 0 : lost_for_; }

    /// Returns whether another process has ended the line that this sink has left open.
    [[nodiscard]] bool lost_its_line() const {
        return in_a_line_ && waiting_bytes() == 0 && line_.was_ended_elsewhere();
    }

    /// Queues `text`.
    void append(std::string_view text);
    /// Does the same, with `label` in front of each line but the first one.
    void append_lines(std::string_view text, std::string_view label);
    /// Writes as much of the queue as is possible now; the rest follows by itself while the io_context runs.
    void push();
    /// Writes the queue; gives up when the file has taken nothing for `timeout` (negative: never).
    void drain(std::chrono::milliseconds timeout);

private:
    enum class Obstacle { kNone, kFull, kLocked };

    /// Writes the queue. Stops when the file has had no room for `wait` (negative: for ever), and at once when another
    /// process holds the lock. Returns what stopped it. After a write error it drops the queue, see lost_for().
    Obstacle pump(std::chrono::milliseconds wait);
    void push_later(Obstacle obstacle);
    void end_line_of_others();
    void drop_written();
    [[nodiscard]] std::size_t room_bytes() const;
    [[nodiscard]] std::size_t next_piece(std::string_view waiting) const;
    [[nodiscard]] ssize_t put(std::string_view piece) const;
    [[nodiscard]] bool try_lock();
    void unlock();

    int fd_;
    boost::asio::posix::stream_descriptor own_;  ///< the same file, opened again as non-blocking; closed: impossible
    boost::asio::steady_timer retry_;
    SharedLine line_;
    std::string queue_;
    std::size_t written_ = 0;  ///< this many bytes of the queue are written already
    bool terminal_ = false;
    bool may_block_ = false;  ///< a pipe, a terminal or a socket: it may be full, and others may write to it
    bool socket_ = false;
    std::size_t pipe_bytes_ = 0;  ///< the size of a pipe; 0: it is none
    bool pushing_ = false;        ///< the rest of the queue will follow
    bool broken_ = false;         ///< the reader is lost: output is dropped
    bool in_a_line_ = false;      ///< the latest byte that was written did not end a line
    int lost_for_ = 0;            ///< the errno with which the latest text was dropped; 0: it was written
    bool locked_ = false;
    std::optional<TimePoint> refused_since_;  ///< another process holds the lock since then, while there was room
};

}  // namespace ddprun::agent
