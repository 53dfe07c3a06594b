#pragma once
// LogWriter: opens and writes the workers' log files on a thread of its own: a file system that takes seconds (a busy
// file server) must not delay the agent's heartbeats. Its queue is bounded: beyond the bound, readers of the workers'
// pipes stop reading, so that the workers wait, as they would if they wrote the files themselves. No byte is dropped
// without a warning. Owned by Agent; every function is for the agent's one thread.

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "agent/output/rotating_file.hpp"
#include "common/clock.hpp"
#include "common/system/unique_fd.hpp"

namespace ddprun::agent {

class LogWriter;

/// LogFile: one log file of a LogWriter. Its bytes are written in order; its destructor closes it after them. Owned by
/// WorkerStream.
class LogFile {
public:
    LogFile() = default;  ///< no file
    LogFile(LogFile&&) noexcept = default;
    LogFile& operator=(LogFile&& other) noexcept;
    ~LogFile() { close(); }

    explicit operator bool() const { return target_ != nullptr; }
    void write(std::string_view bytes);
    /// Returns whether too many bytes wait to be written. The caller then writes no more for now.
    [[nodiscard]] bool backlogged() const;
    /// Warns that a worker waits for this file.
    void report_slow();
    void close();

private:
    friend class LogWriter;
    struct Target;
    std::shared_ptr<Target> target_;
};

class LogWriter {
public:
    /// The files are backlogged when more than this waits for all of them together.
    static constexpr std::size_t kBacklogBytes = 8u << 20;

    /// `warn` is called on the io_context with a sentence about a file that cannot be written. Of several files that
    /// fail for the same reason it names the first.
    LogWriter(boost::asio::io_context& io, std::function<void(const std::string&)> warn);
    /// Does not wait: the writer thread goes on with what finish() has left unwritten, until the process ends.
    ~LogWriter();
    LogWriter(const LogWriter&) = delete;
    LogWriter& operator=(const LogWriter&) = delete;

    /// Returns a log file that is opened for appending, and created with its folders, by the writer thread. Returns no
    /// file, with a warning, if that thread cannot be started.
    [[nodiscard]] LogFile open(std::string path, Rotation rotation = {});
    /// Takes over `fd`, which is open for writing. `name`: in messages, such as "the events /x (--events)". Returns no
    /// file, as open() does.
    [[nodiscard]] LogFile take(UniqueFd fd, std::string name);
    /// Writes a new file for its owner alone, in one step, in place of one at `path`; creates its folders. `name`: in
    /// messages.
    void replace(std::string path, std::string name, std::string_view text);

    /// Waits until everything is written, until `limit` after `since` at most, and warns about bytes that were not
    /// written, and about bytes that files lack because of an error. Write nothing afterwards.
    void finish(std::chrono::milliseconds limit, TimePoint since = Clock::now());

private:
    struct Shared;
    bool start(const std::string& name);
    LogFile add(LogFile::Target target);
    void report();

    friend class LogFile;
    std::shared_ptr<Shared> shared_;
    std::function<void(const std::string&)> warn_;
    bool started_ = false;  ///< the thread starts with the first file
};

}  // namespace ddprun::agent
