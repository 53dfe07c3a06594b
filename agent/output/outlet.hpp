#pragma once
// Outlet: an open file that text is written to without ever waiting for it. Several processes may have the same pipe or
// terminal as theirs (the emulated nodes of one machine): lines come out whole all the same. A pipe takes a write of up
// to PIPE_BUF bytes whole or not at all, so as many lines as fit go into one; whoever needs more than one write for a
// line holds a lock meanwhile. One thread.

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "common/clock.hpp"

namespace ddprun::agent {

class Outlet {
public:
    /// `fd` stays open for as long as the outlet lives.
    Outlet(boost::asio::io_context& io, int fd);
    Outlet(const Outlet&) = delete;
    Outlet& operator=(const Outlet&) = delete;

    [[nodiscard]] bool is_terminal() const { return terminal_; }
    [[nodiscard]] std::size_t waiting_bytes() const { return queue_.size(); }

    /// The errno for which the latest text could not be written (a full disk); 0: it could, or its reader has gone,
    /// which is the reader's choice.
    [[nodiscard]] int lost_for() const { return broken_ ? 0 : lost_for_; }

    void append(std::string_view text);
    /// Writes what can be written now; what is left follows by itself while the io_context runs.
    void push();
    /// Writes all that waits, until the other side has taken nothing for `patience`; negative: however long it takes.
    void drain(std::chrono::milliseconds patience);

private:
    enum class Obstacle { kNone, kFull, kOthersTurn };

    /// Writes until nothing is left or something has been in the way for `wait`; negative: for ever.
    Obstacle pump(std::chrono::milliseconds wait);
    void push_later(Obstacle obstacle);
    [[nodiscard]] std::size_t next_piece(std::string_view waiting) const;
    [[nodiscard]] ssize_t put(std::string_view piece) const;
    [[nodiscard]] bool take_turn();
    void end_turn();

    int fd_;
    boost::asio::posix::stream_descriptor own_;  ///< the same, opened anew as non-blocking; closed: not possible
    boost::asio::steady_timer retry_;
    std::string queue_;
    bool terminal_ = false;
    bool may_block_ = false;  ///< a pipe, a terminal or a socket: others may write there too, and it may be full
    bool socket_ = false;
    bool pushing_ = false;    ///< what is left will follow
    bool broken_ = false;     ///< nobody reads any more: output is dropped
    bool in_a_line_ = false;  ///< what was written last ended no line
    int lost_for_ = 0;        ///< the errno for which the latest text was dropped; 0: it was written
    bool has_turn_ = false;
    std::optional<TimePoint> refused_since_;  ///< by others that have their turn, while there was room
};

}  // namespace ddprun::agent
