#include "agent/output/log_writer.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <boost/asio/post.hpp>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "common/error.hpp"
#include "common/signals_blocked.hpp"

namespace ddprun::agent {
namespace {

/// How much was written; less than all with errno set.
std::size_t write_all(int fd, std::string_view bytes) {
    std::size_t written = 0;
    while (written < bytes.size()) {
        const ssize_t count = ::write(fd, bytes.data() + written, bytes.size() - written);
        if (count < 0 && errno != EINTR) break;
        if (count > 0) written += static_cast<std::size_t>(count);
    }
    return written;
}

}  // namespace

struct LogFile::Target {
    std::string path;
    std::shared_ptr<LogWriter::Shared> writer;
    // The thread's:
    UniqueFd fd;  ///< invalid: it could not be written to the end
    std::size_t missing_bytes = 0;
};

/// What the thread and its owner both hold: a thread that the kernel does not let go (a file server that is gone) may
/// outlive the LogWriter.
struct LogWriter::Shared {
    struct Order {
        std::shared_ptr<LogFile::Target> file;
        std::string bytes;
        bool close = false;
    };

    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Order> orders;       ///< the front is being carried out
    std::size_t waiting_bytes = 0;  ///< of all orders
    bool ending = false;
    std::vector<std::string> problems;   ///< not yet reported
    std::function<void()> tell_problem;  ///< posts report(); empty when the LogWriter is gone

    void put(Order order) {
        const std::lock_guard lock(mutex);
        waiting_bytes += order.bytes.size();
        orders.push_back(std::move(order));
        changed.notify_all();
    }

    void complain(std::string problem) {
        const std::lock_guard lock(mutex);
        problems.push_back(std::move(problem));
        if (tell_problem) tell_problem();
    }

    void run();
    void carry_out(const Order& order);
};

/// The thread.
void LogWriter::Shared::run() {
    std::unique_lock lock(mutex);
    for (;;) {
        changed.wait(lock, [this] { return !orders.empty() || ending; });
        if (orders.empty()) return;
        const Order& order = orders.front();  // references into a deque outlive what is put behind
        lock.unlock();
        carry_out(order);
        lock.lock();
        waiting_bytes -= order.bytes.size();
        orders.pop_front();
        changed.notify_all();
    }
}

void LogWriter::Shared::carry_out(const Order& order) {
    LogFile::Target& file = *order.file;
    const std::size_t written = file.fd ? write_all(file.fd.get(), order.bytes) : 0;
    if (file.fd && written < order.bytes.size()) {
        complain(fmt::format("cannot write the log file {}: {}; it ends here, and the job goes on without it",
                             file.path, std::strerror(errno)));
        file.fd.reset();
    }
    file.missing_bytes += order.bytes.size() - written;
    if (!order.close) return;
    // Some file servers say only now that the disk is full.
    if (file.fd && ::close(file.fd.release()) != 0) {
        complain(system_error(fmt::format("the end of the log file {} may be missing", file.path), errno).message);
    }
    if (file.missing_bytes > 0) {
        complain(fmt::format("{} bytes are missing at the end of the log file {}", file.missing_bytes, file.path));
    }
}

LogWriter::LogWriter(boost::asio::io_context& io, std::function<void(const std::string&)> warn)
    : shared_(std::make_shared<Shared>()), warn_(std::move(warn)) {
    shared_->tell_problem = [this, &io, alive = std::weak_ptr<Shared>(shared_)] {
        boost::asio::post(io, [this, alive] {
            // Both end on this thread: while the LogWriter lives, `tell_problem` is set.
            const auto shared = alive.lock();
            if (shared && shared->tell_problem) report();
        });
    };
}

LogWriter::~LogWriter() {
    const std::lock_guard lock(shared_->mutex);
    shared_->tell_problem = nullptr;
    shared_->ending = true;
    shared_->changed.notify_all();
}

bool LogWriter::start() {
    try {
        const SignalsBlocked blocked;  // signals are for the agent's own thread
        std::thread([shared = shared_] { shared->run(); }).detach();
        return true;
    } catch (const std::system_error& error) {
        shared_->complain(system_error("cannot start a thread to write log files", error.code().value()).message +
                          "; the job goes on without them");
        return false;
    }
}

LogFile LogWriter::take(UniqueFd fd, std::string path) {
    if (!started_) started_ = start();
    if (!started_) return {};
    LogFile file;
    file.target_ = std::make_shared<LogFile::Target>(LogFile::Target{std::move(path), shared_, std::move(fd), 0});
    return file;
}

void LogWriter::report() {
    std::vector<std::string> problems;
    {
        const std::lock_guard lock(shared_->mutex);
        problems = std::exchange(shared_->problems, {});
    }
    for (std::string& problem : problems) {
        if (reported_.insert(problem).second) warn_(problem);
    }
}

void LogWriter::finish(std::chrono::milliseconds limit) {
    std::string unwritten;
    {
        std::unique_lock lock(shared_->mutex);
        if (!shared_->changed.wait_for(lock, limit, [this] { return shared_->orders.empty(); })) {
            unwritten =
                fmt::format("{} bytes of log files, from {} on, could not be written within {} s and are missing",
                            shared_->waiting_bytes, shared_->orders.front().file->path,
                            std::chrono::duration<double>(limit).count());
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
    if (target_ && !bytes.empty()) target_->writer->put({target_, std::string(bytes), false});
}

bool LogFile::backlogged() const {
    if (!target_) return false;
    const std::lock_guard lock(target_->writer->mutex);
    const LogWriter::Shared& writer = *target_->writer;
    // With what an order itself takes: a worker may write single bytes.
    return writer.waiting_bytes + writer.orders.size() * sizeof(LogWriter::Shared::Order) > LogWriter::kBacklogBytes;
}

void LogFile::close() {
    if (const auto target = std::exchange(target_, nullptr)) target->writer->put({target, {}, true});
}

}  // namespace ddprun::agent
