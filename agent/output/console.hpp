#pragma once
// Console: what reaches this agent's stdout and stderr, from its workers and from itself. A console that takes nothing
// (Ctrl-S, a pager, a full pipe) never stalls the agent: output waits here, and beyond a limit in the workers' pipes.
// One thread.

#include <boost/asio/io_context.hpp>
#include <chrono>

#include <array>
#include <cstddef>
#include <memory>
#include <string_view>

#include "agent/output/line_buffer.hpp"
#include "agent/output/outlet.hpp"

namespace ddprun::agent {

class Console {
public:
    enum class Stream { kOut, kErr };
    /// The source of the agent's own lines; workers are 0, 1, ….
    static constexpr int kAgent = -1;
    /// When this much waits, readers of workers' pipes stop reading (backlogged()).
    static constexpr std::size_t kBacklogBytes = 1u << 20;

    Console(boost::asio::io_context& io, int out_fd, int err_fd);

    [[nodiscard]] bool is_terminal(Stream stream) const { return place(stream).outlet.is_terminal(); }

    /// Queues a segment of `source`. `label` goes in front of every new line. When another source has left its line
    /// open, a line end comes first.
    void append(Stream stream, int source, const Segment& segment, std::string_view label = {});
    /// Writes what is queued and can be written without waiting; what is left follows by itself. Once per piece of
    /// output, not per line: a worker that prints much costs one system call for it.
    void push(Stream stream) { place(stream).outlet.push(); }
    /// Both.
    void write(Stream stream, int source, const Segment& segment, std::string_view label = {});

    [[nodiscard]] bool backlogged() const;
    /// The errno for which the latest text to `stream` was lost; 0: it was not.
    [[nodiscard]] int lost_for(Stream stream) const { return place(stream).outlet.lost_for(); }

    /// Writes what is queued and waits for as long as the console takes, as any program would at its end; at most until
    /// it has taken nothing for `patience`. How many bytes it did not take.
    std::size_t drain(std::chrono::milliseconds patience = std::chrono::milliseconds(-1));

private:
    struct Place {
        Place(boost::asio::io_context& io, int fd) : outlet(io, fd) {}

        Outlet outlet;
        int open_source = kAgent;           ///< whose line is unfinished …
        Stream open_stream = Stream::kOut;  ///< … in which of its streams …
        bool line_open = false;             ///< … if this is set
    };

    [[nodiscard]] Place& place(Stream stream) const { return *places_[static_cast<std::size_t>(stream)]; }

    std::array<std::shared_ptr<Place>, 2> places_;  ///< the same one when stdout and stderr are the same file
};

}  // namespace ddprun::agent
