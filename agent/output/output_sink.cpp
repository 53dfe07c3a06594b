#include "agent/output/output_sink.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <thread>

#include "common/system/unique_fd.hpp"

namespace ddprun::agent {
namespace {

constexpr std::chrono::milliseconds kRetryFull{20};  // where no event announces that there is room again
constexpr std::chrono::milliseconds kRetryLock{2};
constexpr std::chrono::milliseconds kNoWait{0};
/// A process that holds the lock for longer, while there is room to write, was stopped in the middle of a line.
constexpr std::chrono::seconds kLockTimeout{1};

bool has_room(int fd, std::chrono::milliseconds wait) {
    pollfd poll_fd{fd, POLLOUT, 0};
    for (;;) {
        const int count = ::poll(&poll_fd, 1, static_cast<int>(wait.count()));
        if (count >= 0 || errno != EINTR) return count != 0;
    }
}

}  // namespace

OutputSink::OutputSink(boost::asio::io_context& io, int fd, SharedLine line)
    : fd_(fd), own_(io), retry_(io), line_(line), terminal_(::isatty(fd) == 1) {
    struct stat status {};
    const bool known = ::fstat(fd, &status) == 0;
    socket_ = known && S_ISSOCK(status.st_mode);
    may_block_ = terminal_ || socket_ || (known && S_ISFIFO(status.st_mode));
    // Pipes and terminals, which can make a write wait, are opened again: O_NONBLOCK and the lock belong to the open
    // file, which the shell and its other programs share. A file never makes a write wait, /dev/null is a device that
    // epoll refuses, and sockets have MSG_DONTWAIT. Where the second open is refused (another user's terminal) every
    // write is small and follows a poll.
    if (!may_block_ || socket_) return;
    const std::string path = fmt::format("/proc/self/fd/{}", fd);
    UniqueFd again(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (!again) return;
    boost::system::error_code refused;
    own_.assign(again.get(), refused);
    if (refused) return;
    fd_ = again.release();
    pipe_bytes_ = static_cast<std::size_t>(std::max(0, ::fcntl(fd_, F_GETPIPE_SZ)));
}

winsize OutputSink::window_size() const {
    winsize size{};
    ::ioctl(fd_, TIOCGWINSZ, &size);  // if it fails, the size stays unknown
    return size;
}

void OutputSink::append(std::string_view text) {
    if (broken_) return;
    if (lost_for_ != 0 && waiting_bytes() == 0) {
        queue_ =
            fmt::format("{}[ddprun] output is missing here: {}\n", in_a_line_ ? "\n" : "", std::strerror(lost_for_));
    }
    queue_ += text;
}

void OutputSink::append_lines(std::string_view text, std::string_view label) {
    if (label.empty()) return append(text);
    for (std::size_t end; (end = text.find('\n') + 1) != 0 && end < text.size(); text.remove_prefix(end)) {
        append(text.substr(0, end));
        append(label);
    }
    append(text);
}

void OutputSink::push() {
    if (pushing_) return;
    if (const Obstacle obstacle = pump(kNoWait); obstacle != Obstacle::kNone) push_later(obstacle);
}

void OutputSink::drain(std::chrono::milliseconds timeout) {
    while (pump(timeout) == Obstacle::kLocked) std::this_thread::sleep_for(kRetryLock);
}

void OutputSink::push_later(Obstacle obstacle) {
    pushing_ = true;
    const auto go_on = [this](const boost::system::error_code& error) {
        if (error) return;
        pushing_ = false;
        push();
    };
    if (obstacle == Obstacle::kFull && own_.is_open()) {
        own_.async_wait(boost::asio::posix::descriptor_base::wait_write, go_on);
    } else {
        retry_.expires_after(obstacle == Obstacle::kFull ? kRetryFull : kRetryLock);
        retry_.async_wait(go_on);
    }
}

OutputSink::Obstacle OutputSink::pump(std::chrono::milliseconds wait) {
    Obstacle obstacle = Obstacle::kNone;
    const bool write_may_wait = may_block_ && !own_.is_open() && !socket_;
    while (waiting_bytes() > 0 && obstacle == Obstacle::kNone) {
        if ((wait != kNoWait || write_may_wait) && !has_room(fd_, wait)) {
            refused_since_.reset();  // the holder of the lock has to wait as well
            obstacle = Obstacle::kFull;
        } else if (!try_lock()) {
            const bool holder_waits = wait == kNoWait && !has_room(fd_, kNoWait);
            if (holder_waits) refused_since_.reset();
            obstacle = holder_waits ? Obstacle::kFull : Obstacle::kLocked;
        } else {
            end_line_of_others();
            const std::string_view waiting = std::string_view(queue_).substr(written_);
            const ssize_t count = put(waiting.substr(0, next_piece(waiting)));
            if (count > 0) {
                written_ += static_cast<std::size_t>(count);
                lost_for_ = 0;
                in_a_line_ = queue_[written_ - 1] != '\n';
                line_.set_open(in_a_line_ && queue_[written_ - 1] != '\r');
            } else if (count == 0 || errno == EAGAIN) {
                if (wait == kNoWait) obstacle = Obstacle::kFull;
            } else if (errno != EINTR) {
                // Training goes on without output. A reader that has ended (… | head) does not return, but room on a
                // disk may.
                broken_ = errno == EPIPE || errno == EBADF || (errno == EIO && terminal_);
                lost_for_ = errno;
                written_ = queue_.size();
            }
        }
    }
    drop_written();
    if (queue_.empty() || !in_a_line_) unlock();
    return obstacle;
}

/// Removes what is written from the queue, unless more would have to be moved.
void OutputSink::drop_written() {
    if (written_ < waiting_bytes()) return;
    queue_.erase(0, written_);
    written_ = 0;
}

/// Puts a line end in front of what waits if another process has left a line open. A progress bar rewrites that line
/// instead.
void OutputSink::end_line_of_others() {
    if (!line_.is_open_elsewhere() || queue_[written_] == '\r' || queue_[written_] == '\n') return;
    queue_.insert(written_, 1, '\n');
}

/// Returns how many bytes of `waiting` to put into one write.
std::size_t OutputSink::next_piece(std::string_view waiting) const {
    if (!may_block_ || waiting.size() <= PIPE_BUF) return waiting.size();
    const std::size_t room = room_bytes();
    if (waiting.size() <= room) return waiting.size();
    const std::size_t last_end = waiting.rfind('\n', room - 1);
    if (last_end != std::string_view::npos) return last_end + 1;
    const std::size_t end = waiting.find('\n');
    const std::size_t line_bytes = end == std::string_view::npos ? waiting.size() : end + 1;
    return own_.is_open() || socket_ ? line_bytes : std::min<std::size_t>(line_bytes, PIPE_BUF);
}

/// Returns how many bytes the file takes whole or not at all, at least PIPE_BUF. A pipe holds pages, which may be
/// partly empty; but the content of each two neighbours has not fitted into one.
std::size_t OutputSink::room_bytes() const {
    static const auto kPage = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    int unread = 0;
    if (pipe_bytes_ == 0 || ::ioctl(fd_, FIONREAD, &unread) != 0) return PIPE_BUF;
    const std::size_t used = unread == 0 ? 0 : 2 * (static_cast<std::size_t>(unread) + kPage);
    return std::max<std::size_t>(PIPE_BUF, used < pipe_bytes_ ? (pipe_bytes_ - used) / kPage * kPage : 0);
}

ssize_t OutputSink::put(std::string_view piece) const {
    if (socket_) return ::send(fd_, piece.data(), piece.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return ::write(fd_, piece.data(), piece.size());
}

/// Locks the pipe or terminal itself, so that all its writers share the lock. It ends with its holder's process.
/// Returns true also if the holder has exceeded kLockTimeout, or there are no locks.
bool OutputSink::try_lock() {
    if (locked_ || !own_.is_open()) return true;
    if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) {
        locked_ = true;
        refused_since_.reset();
        return true;
    }
    if (errno != EWOULDBLOCK) return true;  // there are no locks: lines longer than PIPE_BUF may be cut
    const TimePoint now = Clock::now();
    if (!refused_since_) refused_since_ = now;
    return now - *refused_since_ > kLockTimeout;
}

void OutputSink::unlock() {
    if (locked_) ::flock(fd_, LOCK_UN);
    locked_ = false;
}

}  // namespace ddprun::agent
