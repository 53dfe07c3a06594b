#include "agent/output/console.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <limits>

namespace ddprun::agent {
namespace {

constexpr std::chrono::milliseconds kRetryEvery{20};
constexpr std::size_t kBlockingWriteBytes = 4096;  // PIPE_BUF: poll(2) promises that a pipe takes this much

bool ready(int fd, bool wait) {
    pollfd poll_fd{fd, POLLOUT, 0};
    for (;;) {
        const int count = ::poll(&poll_fd, 1, wait ? -1 : 0);
        if (count >= 0 || errno != EINTR) return count != 0;
    }
}

}  // namespace

Console::Console(boost::asio::io_context& io, int out_fd, int err_fd)
    : outlets_{open_outlet(out_fd), open_outlet(err_fd)}, retry_(io) {}

Console::Outlet Console::open_outlet(int fd) {
    Outlet outlet;
    outlet.fd = fd;
    outlet.terminal = ::isatty(fd) == 1;
    struct stat status {};
    if (::fstat(fd, &status) == 0 && (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode))) {
        // O_NONBLOCK belongs to the open file, which our shell and its other programs share: set it on one of our own.
        outlet.own.reset(
            ::open(fmt::format("/proc/self/fd/{}", fd).c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
        if (outlet.own)
            outlet.fd = outlet.own.get();  // else (another user's terminal): small writes, each after a poll
    }
    return outlet;
}

void Console::write(Stream stream, int source, const Segment& segment, std::string_view label) {
    Outlet& outlet = outlets_[static_cast<std::size_t>(stream)];
    if (outlet.broken || segment.text.empty()) return;
    std::string_view text = segment.text;
    if (outlet.line_open && outlet.open_source != source && text.front() != '\r') outlet.queue += '\n';
    if (segment.starts_line && !label.empty()) {
        if (text.front() == '\r') {
            outlet.queue += '\r';
            text.remove_prefix(1);
        }
        outlet.queue += label;
    }
    outlet.queue += text;
    outlet.open_source = source;
    outlet.line_open = segment.text.back() != '\n' && segment.text.back() != '\r';
    if (!outlet.waiting && pump(outlet, false)) wait_to_retry(outlet);
}

bool Console::backlogged() const {
    return std::ranges::any_of(outlets_, [](const Outlet& outlet) { return outlet.queue.size() > kBacklogBytes; });
}

bool Console::pump(Outlet& outlet, bool wait) {
    const std::size_t piece = outlet.own ? std::numeric_limits<std::size_t>::max() : kBlockingWriteBytes;
    std::size_t written = 0;
    while (written < outlet.queue.size() && ready(outlet.fd, wait)) {
        const ssize_t count =
            ::write(outlet.fd, outlet.queue.data() + written, std::min(piece, outlet.queue.size() - written));
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
            if (!wait) break;
        } else if (count < 0) {
            // The reader has gone (… | head), or the disk is full. Training goes on without.
            outlet.broken = true;
            outlet.queue.clear();
            return false;
        } else {
            written += static_cast<std::size_t>(count);
        }
    }
    outlet.queue.erase(0, written);
    return !outlet.queue.empty();
}

void Console::wait_to_retry(Outlet& outlet) {
    outlet.waiting = true;
    if (retrying_) return;
    retrying_ = true;
    retry_.expires_after(kRetryEvery);
    retry_.async_wait([this](const boost::system::error_code& error) {
        if (error) return;
        retrying_ = false;
        for (Outlet& waiting : outlets_) {
            waiting.waiting = false;
            if (pump(waiting, false)) wait_to_retry(waiting);
        }
    });
}

void Console::drain() {
    for (Outlet& outlet : outlets_) pump(outlet, true);
}

}  // namespace ddprun::agent
