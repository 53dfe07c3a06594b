#pragma once
// Console: writes the output of the workers and of the agent itself to this process's stdout and stderr. A console that
// takes nothing (Ctrl-S, a pager, a full pipe) never stalls the agent: output waits here, and beyond a limit in the
// workers' pipes. Owned by Agent; WorkerStream, ConsoleLog and StatusReporter write to it. One thread.

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agent/output/line_buffer.hpp"
#include "agent/output/line_folder.hpp"
#include "agent/output/output_sink.hpp"
#include "agent/output/shared_lines.hpp"
#include "agent/output/terminal_reader.hpp"
#include "agent/output/time_stamp.hpp"

namespace ddprun::agent {

class Console {
public:
    enum class Stream { kOut, kErr };
    /// The source of the agent's own lines; workers are 0, 1, ….
    static constexpr int kAgent = -1;
    /// When more than this waits, readers of workers' pipes stop reading (backlogged()).
    static constexpr std::size_t kBacklogBytes = 1u << 20;
    /// Returns the beginning of a folded line that these workers have printed.
    using FoldLabel = std::function<std::string(const std::vector<int>& sources)>;

    /// `lines`: of the other processes that write to the same files.
    Console(boost::asio::io_context& io, int out_fd, int err_fd, SharedLines lines = {});
    Console(const Console&) = delete;
    Console& operator=(const Console&) = delete;

    [[nodiscard]] bool is_terminal(Stream stream) const { return output(stream).sink.is_terminal(); }

    /// Returns the size of that terminal; zeros: it is unknown.
    [[nodiscard]] winsize window_size(Stream stream) const { return output(stream).sink.window_size(); }

    /// Folds the lines that workers print from now on: equal ones become one, which begins with `label`, after the time
    /// if `timestamps`. The agent's own lines are written at once, after all that is held.
    void fold(FoldLabel label, bool timestamps);
    [[nodiscard]] bool folds() const { return folding_ != nullptr; }
    /// Notes, for fold(), that a worker may print to `stream`, or no longer does.
    void open(Stream stream, int source);
    void close(Stream stream, int source);

    /// Queues a segment of `source`, with `label` in front of every new line. If a line is open
    /// that the segment does not continue, a line end comes first; what then follows of that line gets the label again.
    /// Whole lines may be folded instead; then a segment has one line.
    void append(Stream stream, int source, const Segment& segment, std::string_view label = {});
    /// Notes that the open line of `source` is a prompt, for which its worker waits now. When the worker goes on, the
    /// terminal has ended that line: what follows begins a new one, with its label.
    void note_prompt(Stream stream, int source, ReadCheck worker);
    /// Writes as much of the queue as is possible without waiting; the rest follows by itself. Call it once per piece
    /// of output, not per line: that saves system calls for a worker that prints much.
    void push(Stream stream) { output(stream).sink.push(); }
    /// Does append() and push().
    void write(Stream stream, int source, const Segment& segment, std::string_view label = {});

    [[nodiscard]] bool backlogged() const;
    /// Returns the errno with which the latest text to `stream` was lost; 0: it was not lost.
    [[nodiscard]] int lost_for(Stream stream) const { return output(stream).sink.lost_for(); }

    /// Writes the queue and waits until the console has taken it, as any program does at its end; gives up when the
    /// console has taken nothing for `timeout` (negative: never). Returns how many bytes it did not take.
    std::size_t drain(std::chrono::milliseconds timeout = std::chrono::milliseconds(-1));

private:
    struct Output {
        Output(boost::asio::io_context& io, int fd, SharedLine line) : sink(io, fd, line) {}

        OutputSink sink;
        bool line_open = false;             ///< the last line has no end yet …
        int open_source = kAgent;           ///< … it is of this source …
        Stream open_stream = Stream::kOut;  ///< … and of this stream
        ReadCheck prompted;                 ///< the worker that waits for an answer to it; empty: it is no prompt

        [[nodiscard]] bool is_open_line_of(Stream stream, int source) const;
        [[nodiscard]] bool was_answered(bool continues) const;
    };

    /// The state of folding for both streams; see fold().
    struct Folding {
        explicit Folding(Console& console);

        FoldLabel label;
        bool timestamps = false;
        std::array<LineFolder, 2> folders;  ///< by stream
        TimeStamp time_stamp;
        boost::asio::steady_timer timer;
        bool armed = false;  ///< the timer runs
    };

    [[nodiscard]] Output& output(Stream stream) const { return *outputs_[static_cast<std::size_t>(stream)]; }
    [[nodiscard]] LineFolder* folder(Stream stream) const;
    [[nodiscard]] bool take_to_fold(Stream stream, int source, const Segment& segment);
    void append_folded(Stream stream, const LineFolder::Folded& line);
    void append_now(Stream stream, int source, const Segment& segment, std::string_view label);
    void release_folded();
    void wait_for_due_lines();

    boost::asio::io_context& io_;
    SharedLines lines_;
    std::array<std::shared_ptr<Output>, 2> outputs_;  ///< the same one if stdout and stderr are the same file
    std::unique_ptr<Folding> folding_;                ///< null: lines are not folded
};

/// Writes lines of the agent itself to stderr, each after the time of day if `timestamps`.
void write_block(Console& console, std::string_view lines, bool timestamps);

/// Writes the console's queue. After a success (exit code 0) it waits for a slow reader as long as that takes, as any
/// program does. After a failure or an interruption it gives up when the console has taken nothing for a while, and
/// prints a warning: a scheduler waits for the end of the job. Output that could not be written (a full disk) costs a
/// warning too, and changes no exit code. `tag` begins the warnings. `waited`: the time for which the console has taken
/// nothing already.
void drain_at_end(Console& console, int exit_code, std::string_view tag,
                  std::chrono::milliseconds waited = std::chrono::milliseconds(0));

/// Returns for how long drain_at_end() waits at most after a failure or an interruption (exit codes other than 0).
[[nodiscard]] std::chrono::seconds console_timeout(int exit_code);

}  // namespace ddprun::agent
