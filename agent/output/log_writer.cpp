#include "agent/output/log_writer.hpp"

#include <fmt/format.h>

#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstring>
#include <deque>
#include <string>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/clock.hpp"
#include "common/error.hpp"
#include "common/mutex.hpp"
#include "common/system/signals_blocked.hpp"
#include "common/text/number.hpp"

namespace ddprun::agent {
namespace {

/// After a write the writer thread collects bytes for this long, or until there are so many: a worker that prints line
/// by line would else wake it for each line.
constexpr std::chrono::milliseconds kCollectTime{5};
constexpr std::size_t kCollectBytes = 256u << 10;

}  // namespace

struct LogFile::Target {
    std::string path;
    std::shared_ptr<LogWriter::Shared> writer;
    // Used by the writer thread alone:
    RotatingFile file;  ///< closed after a write that failed
    std::size_t missing_bytes = 0;
};

/// The queue between the agent's thread and the writer thread, which both own it: a thread that hangs in the kernel (a
/// lost file server) may outlive the LogWriter.
struct LogWriter::Shared {
    /// All that waits for one file.
    struct Job {
        std::shared_ptr<LogFile::Target> file;
        std::string bytes;
        bool close = false;
    };

    Mutex mutex;
    Condition changed;
    std::deque<Job> jobs GUARDED_BY(mutex);  ///< the writer thread works on the front
    std::unordered_map<const LogFile::Target*, Job*> open_jobs GUARDED_BY(mutex);  ///< those that take more bytes
    std::size_t waiting_bytes GUARDED_BY(mutex) = 0;                               ///< of all jobs
    bool idle GUARDED_BY(mutex) = false;     ///< the writer thread waits for the next job
    bool hurried GUARDED_BY(mutex) = false;  ///< it collects nothing more
    bool ending GUARDED_BY(mutex) = false;
    std::vector<std::string> problems GUARDED_BY(mutex);  ///< not yet reported
    std::function<void()> post_report
        GUARDED_BY(mutex);  ///< makes the agent's thread call report(); empty: the LogWriter was destroyed

    void put(const std::shared_ptr<LogFile::Target>& file, std::string_view bytes, bool close) EXCLUDES(mutex) {
        const Lock lock(mutex);
        Job*& job = open_jobs[file.get()];
        if (job == nullptr) job = &jobs.emplace_back(Job{file, {}, false});
        job->bytes += bytes;
        job->close |= close;
        waiting_bytes += bytes.size();
        if (idle || waiting_bytes >= kCollectBytes) changed.notify_all();
    }

    void add_problem(std::string problem) EXCLUDES(mutex) {
        const Lock lock(mutex);
        problems.push_back(std::move(problem));
        if (post_report) post_report();
    }

    /// Returns whether the LogWriter lives.
    [[nodiscard]] bool is_used() EXCLUDES(mutex) {
        const Lock lock(mutex);
        return post_report != nullptr;
    }

    void run() EXCLUDES(mutex);
    void do_front() REQUIRES(mutex);
    void do_job(const Job& job) EXCLUDES(mutex);
};

/// Does jobs until the LogWriter is destroyed and no job is left; the body of the writer thread.
void LogWriter::Shared::run() {
    const Lock lock(mutex);
    for (;;) {
        idle = true;
        while (jobs.empty() && !ending) changed.wait(mutex);
        idle = false;
        if (jobs.empty()) return;
        for (std::size_t left = jobs.size(); left > 0; --left) do_front();
        if (waiting_bytes < kCollectBytes && !hurried) changed.wait_until(mutex, Clock::now() + kCollectTime);
    }
}

void LogWriter::Shared::do_front() {
    const Job& job = jobs.front();  // emplace_back() into a deque keeps references valid
    open_jobs.erase(job.file.get());
    mutex.unlock();
    do_job(job);
    mutex.lock();
    waiting_bytes -= job.bytes.size();
    jobs.pop_front();
    changed.notify_all();
}

void LogWriter::Shared::do_job(const Job& job) {
    LogFile::Target& target = *job.file;
    RotatingFile& file = target.file;
    const std::size_t written = file.is_open() ? file.write(job.bytes) : 0;
    if (file.is_open() && written < job.bytes.size()) {
        add_problem(fmt::format("cannot write the log file {}: {}; it ends here, and the job goes on without it",
                                target.path, std::strerror(errno)));
        file = RotatingFile();
    }
    if (const Result<void> rotated = file.take_problem(); !rotated) add_problem(rotated.error().message);
    target.missing_bytes += job.bytes.size() - written;
    if (!job.close) return;
    if (const Result<void> closed = file.close(); !closed) add_problem(closed.error().message);
    if (target.missing_bytes > 0) {
        add_problem(
            fmt::format("{} bytes are missing at the end of the log file {}", target.missing_bytes, target.path));
    }
}

LogWriter::LogWriter(boost::asio::io_context& io, std::function<void(const std::string&)> warn)
    : shared_(std::make_shared<Shared>()), warn_(std::move(warn)) {
    shared_->post_report = [this, &io, alive = std::weak_ptr<Shared>(shared_)] {
        boost::asio::post(io, [this, alive] {
            // The LogWriter is destroyed on this thread, so it lives on.
            const auto shared = alive.lock();
            if (shared && shared->is_used()) report();
        });
    };
}

LogWriter::~LogWriter() {
    const Lock lock(shared_->mutex);
    shared_->post_report = nullptr;
    shared_->ending = shared_->hurried = true;
    shared_->changed.notify_all();
}

bool LogWriter::start() {
    try {
        const SignalsBlocked blocked;  // the agent's main thread gets the signals
        std::thread([shared = shared_] { shared->run(); }).detach();
        return true;
    } catch (const std::system_error& error) {
        shared_->add_problem(system_error("cannot start a thread to write log files", error.code().value()).message +
                             "; the job goes on without them");
        return false;
    }
}

LogFile LogWriter::take(UniqueFd fd, std::string path, Rotation rotation) {
    if (!started_) started_ = start();
    if (!started_) return {};
    LogFile file;
    RotatingFile writable(std::move(fd), path, rotation);
    file.target_ = std::make_shared<LogFile::Target>(LogFile::Target{std::move(path), shared_, std::move(writable), 0});
    return file;
}

void LogWriter::report() {
    std::vector<std::string> problems;
    {
        const Lock lock(shared_->mutex);
        problems = std::exchange(shared_->problems, {});
    }
    for (std::string& problem : problems) {
        if (reported_.insert(problem).second) warn_(problem);
    }
}

void LogWriter::finish(std::chrono::milliseconds limit, TimePoint since) {
    std::string unwritten;
    {
        const TimePoint deadline = since + limit;
        const Lock lock(shared_->mutex);
        shared_->hurried = true;
        shared_->changed.notify_all();
        while (!shared_->jobs.empty() && shared_->changed.wait_until(shared_->mutex, deadline)) {
        }
        if (!shared_->jobs.empty()) {
            unwritten = fmt::format(
                "{} bytes of log output were not written within {} and are lost; the first file concerned is {}. Is "
                "its file system slow or full?",
                shared_->waiting_bytes, seconds_text(limit), shared_->jobs.front().file->path);
        }
    }
    report();
    if (!unwritten.empty()) warn_(unwritten);
}

LogFile& LogFile::operator=(LogFile&& other) noexcept {
    if (this != &other) {
        close();
        target_ = std::move(other.target_);
    }
    return *this;
}

void LogFile::write(std::string_view bytes) {
    if (target_ && !bytes.empty()) target_->writer->put(target_, bytes, false);
}

bool LogFile::backlogged() const {
    if (!target_) return false;
    LogWriter::Shared& writer = *target_->writer;
    const Lock lock(writer.mutex);
    // A job itself takes memory too: each write must not be one, because a worker may write single bytes.
    return writer.waiting_bytes + writer.jobs.size() * sizeof(LogWriter::Shared::Job) > LogWriter::kBacklogBytes;
}

void LogFile::report_slow() {
    if (target_)
        target_->writer->add_problem(fmt::format(
            "workers that print wait for their log files: {} is written too slowly, or not at all. Is its file system "
            "slow, or does its server not answer?",
            target_->path));
}

void LogFile::close() {
    if (const auto target = std::exchange(target_, nullptr)) target->writer->put(target, {}, true);
}

}  // namespace ddprun::agent
