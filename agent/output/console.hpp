#pragma once
// Console: what reaches this agent's stdout and stderr, from its workers and from itself. A console that takes nothing
// (Ctrl-S, a pager, a full pipe) never stalls the agent: output waits here, and beyond a limit in the workers' pipes.
// One thread.

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "agent/output/line_buffer.hpp"

namespace ddprun::agent {

class Console {
public:
    enum class Stream { kOut, kErr };
    /// The source of the agent's own lines; workers are 0, 1, ….
    static constexpr int kAgent = -1;
    /// When this much waits, readers of workers' pipes stop reading (backlogged()).
    static constexpr std::size_t kBacklogBytes = 1u << 20;

    Console(boost::asio::io_context& io, int out_fd, int err_fd);

    [[nodiscard]] bool is_terminal(Stream stream) const { return outlet(stream).terminal; }

    /// Queues a segment of `source` and writes what can be written without waiting. `label` goes in front of every new
    /// line. When another source has left its line open, a line end comes first.
    void write(Stream stream, int source, const Segment& segment, std::string_view label = {});

    [[nodiscard]] bool backlogged() const;

    /// Writes what is queued and waits for as long as the console takes, as any program would at its end.
    void drain();

private:
    struct Outlet {
        Outlet(boost::asio::io_context& io, int fd_to_use);

        int fd;                                     ///< where to write
        boost::asio::posix::stream_descriptor own;  ///< the same, opened anew as non-blocking; closed: not possible
        boost::asio::steady_timer retry;            ///< for when it is not
        std::string queue;
        bool terminal = false;
        bool waiting = false;      ///< it took no more the last time
        bool broken = false;       ///< nobody reads any more: output is dropped
        int open_source = kAgent;  ///< whose line is unfinished …
        bool line_open = false;    ///< … if this is set
    };

    [[nodiscard]] const Outlet& outlet(Stream stream) const { return outlets_[static_cast<std::size_t>(stream)]; }
    /// Writes while the console takes it. `wait`: until all is written. True when something is left.
    bool pump(Outlet& outlet, bool wait);
    void pump_when_ready(Outlet& outlet);

    std::array<Outlet, 2> outlets_;
};

}  // namespace ddprun::agent
