#include "agent/output/log_writer.hpp"

#include <fmt/format.h>

#include <boost/asio/post.hpp>
#include <cerrno>
#include <deque>
#include <filesystem>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "agent/output/log_files.hpp"
#include "agent/output/result_file.hpp"
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
    std::string name;  ///< in messages: "the log file /logs/rank-0.out"
    std::shared_ptr<LogWriter::Shared> writer;
    // Used by the writer thread alone:
    RotatingFile file = {};    ///< closed: not yet open, or a write has failed
    std::string path = {};     ///< of a file that is not yet open; empty: nothing is to be opened
    Rotation rotation = {};    ///< of that file
    bool is_replaced = false;  ///< `path` gets the bytes of the one job in one step
    bool lacks_bytes = false;
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
    std::set<std::string> causes GUARDED_BY(mutex);       ///< of all problems so far
    std::size_t missing_bytes GUARDED_BY(mutex) = 0;
    std::size_t missing_files GUARDED_BY(mutex) = 0;  ///< those that lack these bytes
    std::string first_missing GUARDED_BY(mutex);      ///< the name of the first
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

    /// Has `problem` reported, unless one of the same cause was.
    void add_problem(std::string problem, const std::string& cause) EXCLUDES(mutex) {
        const Lock lock(mutex);
        if (!causes.insert(cause).second) return;
        problems.push_back(std::move(problem));
        if (post_report) post_report();
    }
    void add_problem(const std::string& problem) EXCLUDES(mutex) { add_problem(problem, problem); }

    /// Returns whether the LogWriter lives.
    [[nodiscard]] bool is_used() EXCLUDES(mutex) {
        const Lock lock(mutex);
        return post_report != nullptr;
    }

    void run() EXCLUDES(mutex);
    void do_front() REQUIRES(mutex);
    void do_job(const Job& job) EXCLUDES(mutex);
    void open(LogFile::Target& target) EXCLUDES(mutex);
    void replace(LogFile::Target& target, std::string_view text) EXCLUDES(mutex);
    void note_missing(LogFile::Target& target, std::size_t bytes) EXCLUDES(mutex);
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
    if (target.is_replaced) return replace(target, job.bytes);
    if (!target.path.empty()) open(target);
    RotatingFile& file = target.file;
    const std::size_t written = file.is_open() ? file.write(job.bytes) : 0;
    if (file.is_open() && written < job.bytes.size()) {
        const Error failed = system_error(fmt::format("cannot write {}", target.name), errno);
        add_problem(failed.message + "; the file ends here, and the job goes on without it",
                    fmt::format("write {}", failed.code.value()));
        file = RotatingFile();
    }
    if (const Result<void> rotated = file.take_problem(); !rotated) add_problem(rotated.error().message);
    note_missing(target, job.bytes.size() - written);
    if (!job.close) return;
    if (const int failed = file.close(); failed != 0)
        add_problem(system_error(fmt::format("the end of {} may be missing", target.name), failed).message);
}

void LogWriter::Shared::open(LogFile::Target& target) {
    const std::string path = std::exchange(target.path, {});
    if (Result<UniqueFd> opened = open_log_file(path))
        target.file = RotatingFile(std::move(*opened), path, target.rotation);
    else
        add_problem(opened.error().message + "; the job goes on without it",
                    fmt::format("open {}", opened.error().code.value()));
}

void LogWriter::Shared::replace(LogFile::Target& target, std::string_view text) {
    Result<void> written = make_folders(std::filesystem::path(target.path).parent_path());
    if (written) written = write_file({target.path, target.name, "", 0600}, text, Existing::kReplace);
    if (written) return;
    add_problem(written.error().message + "; the job goes on without it",
                fmt::format("replace {}", written.error().code.value()));
    note_missing(target, text.size());
}

/// Counts bytes that a file lacks because of an error.
void LogWriter::Shared::note_missing(LogFile::Target& target, std::size_t bytes) {
    if (bytes == 0) return;
    const Lock lock(mutex);
    missing_bytes += bytes;
    if (std::exchange(target.lacks_bytes, true)) return;
    if (missing_files++ == 0) first_missing = target.name;
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

bool LogWriter::start(const std::string& name) {
    try {
        const SignalsBlocked blocked;  // the agent's main thread gets the signals
        std::thread([shared = shared_] { shared->run(); }).detach();
        return true;
    } catch (const std::system_error& error) {
        const Error failed = system_error(fmt::format("cannot start a thread to write {}", name), error.code().value());
        shared_->add_problem(failed.message + "; the job goes on without such files", "thread");
        return false;
    }
}

LogFile LogWriter::add(LogFile::Target target) {
    if (!started_) started_ = start(target.name);
    LogFile file;
    if (started_) file.target_ = std::make_shared<LogFile::Target>(std::move(target));
    return file;
}

LogFile LogWriter::open(std::string path, Rotation rotation) {
    LogFile file = add({.name = "the log file " + path, .writer = shared_, .path = path, .rotation = rotation});
    if (file) shared_->put(file.target_, {}, false);  // so that it exists before the worker prints anything
    return file;
}

LogFile LogWriter::take(UniqueFd fd, std::string name) {
    return add({.name = std::move(name), .writer = shared_, .file = RotatingFile(std::move(fd), "", {})});
}

void LogWriter::replace(std::string path, std::string name, std::string_view text) {
    LogFile file = add({.name = std::move(name), .writer = shared_, .path = std::move(path), .is_replaced = true});
    if (const auto target = std::exchange(file.target_, nullptr)) shared_->put(target, text, true);
}

void LogWriter::report() {
    std::vector<std::string> problems;
    {
        const Lock lock(shared_->mutex);
        problems = std::exchange(shared_->problems, {});
    }
    for (const std::string& problem : problems) warn_(problem);
}

void LogWriter::finish(std::chrono::milliseconds limit, TimePoint since) {
    std::vector<std::string> lost;
    {
        const TimePoint deadline = since + limit;
        const Lock lock(shared_->mutex);
        shared_->hurried = true;
        shared_->changed.notify_all();
        while (!shared_->jobs.empty() && shared_->changed.wait_until(shared_->mutex, deadline)) {
        }
        if (shared_->missing_files == 1) {
            lost.push_back(fmt::format("{} bytes of {} are missing", shared_->missing_bytes, shared_->first_missing));
        } else if (shared_->missing_files > 1) {
            lost.push_back(fmt::format("{} bytes of {} files are missing, the first is {}", shared_->missing_bytes,
                                       shared_->missing_files, shared_->first_missing));
        }
        if (!shared_->jobs.empty()) {
            const std::string what =
                shared_->waiting_bytes > 0
                    ? fmt::format("{} bytes were not written within {} and are lost", shared_->waiting_bytes,
                                  seconds_text(limit))
                    : fmt::format("files were not opened or closed within {}", seconds_text(limit));
            lost.push_back(
                fmt::format("{}; the first file concerned is {}. Is its file system slow or full, or does "
                            "its server not answer?",
                            what, shared_->jobs.front().file->name));
        }
    }
    report();
    for (const std::string& text : lost) warn_(text);
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
        target_->writer->add_problem(
            fmt::format("workers that print wait for their log files: {} is written too slowly, or not at all. Is its "
                        "file system slow, or does its server not answer?",
                        target_->name),
            "slow");
}

void LogFile::close() {
    if (const auto target = std::exchange(target_, nullptr)) target->writer->put(target, {}, true);
}

}  // namespace ddprun::agent
