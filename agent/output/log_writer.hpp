#pragma once
// LogWriter: writes the workers' log files on a thread of its own. A file system that takes seconds (a busy file
// server) must not keep the agent from its heartbeats. What waits is bounded: beyond it, readers of the workers' pipes
// stop reading, so that the workers wait, as they would if they wrote the files themselves. No byte is dropped in
// silence. Everything here but the writing itself runs on the agent's one thread.

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "common/unique_fd.hpp"

namespace ddprun::agent {

class LogWriter;

/// A log file as its owner sees it: bytes go in, in order. Its end is the file's, behind all that was written.
class LogFile {
public:
    LogFile() = default;  ///< no file
    LogFile(LogFile&&) noexcept = default;
    LogFile& operator=(LogFile&& other) noexcept;
    ~LogFile() { close(); }

    explicit operator bool() const { return target_ != nullptr; }
    void write(std::string_view bytes);
    /// True: write no more for now.
    [[nodiscard]] bool backlogged() const;
    void close();

private:
    friend class LogWriter;
    struct Target;
    std::shared_ptr<Target> target_;
};

class LogWriter {
public:
    /// When this much waits, of all files together, they are backlogged.
    static constexpr std::size_t kBacklogBytes = 8u << 20;

    /// `warn` is called on the io_context, with a sentence about a file that cannot be written; once per sentence.
    LogWriter(boost::asio::io_context& io, std::function<void(const std::string&)> warn);
    /// Leaves unwritten what finish() has not seen written.
    ~LogWriter();
    LogWriter(const LogWriter&) = delete;
    LogWriter& operator=(const LogWriter&) = delete;

    /// `fd` is open for writing; `path` names it in warnings. No file, with a warning, when no thread is to be had.
    [[nodiscard]] LogFile take(UniqueFd fd, std::string path);

    /// Waits until everything is written, for `limit` at most; warns about what is not. Nothing may be written then.
    void finish(std::chrono::milliseconds limit);

private:
    struct Shared;
    bool start();
    void report();

    friend class LogFile;
    std::shared_ptr<Shared> shared_;
    std::function<void(const std::string&)> warn_;
    std::set<std::string> reported_;
    bool started_ = false;  ///< the thread, with the first file
};

}  // namespace ddprun::agent
