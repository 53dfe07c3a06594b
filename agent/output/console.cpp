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

#include "common/unique_fd.hpp"

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
    : outlets_{Outlet(io, out_fd), Outlet(io, err_fd)} {}

Console::Outlet::Outlet(boost::asio::io_context& io, int fd_to_use)
    : fd(fd_to_use), own(io), retry(io), terminal(::isatty(fd_to_use) == 1) {
    struct stat status {};
    // Only what can make us wait: a file never does, and /dev/null is a device that epoll refuses.
    if (::fstat(fd, &status) != 0 || !(S_ISFIFO(status.st_mode) || terminal)) return;
    // O_NONBLOCK belongs to the open file, which our shell and its other programs share: set it on one of our own.
    // Where that is refused (another user's terminal) every write is small and follows a poll.
    const std::string path = fmt::format("/proc/self/fd/{}", fd);
    UniqueFd again(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (!again) return;
    boost::system::error_code refused;
    own.assign(again.get(), refused);
    if (!refused) fd = again.release();
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
    if (!outlet.waiting && pump(outlet, false)) pump_when_ready(outlet);
}

bool Console::backlogged() const {
    return std::ranges::any_of(outlets_, [](const Outlet& outlet) { return outlet.queue.size() > kBacklogBytes; });
}

bool Console::pump(Outlet& outlet, bool wait) {
    const std::size_t piece = outlet.own.is_open() ? std::numeric_limits<std::size_t>::max() : kBlockingWriteBytes;
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

void Console::pump_when_ready(Outlet& outlet) {
    outlet.waiting = true;
    const auto ready = [this, &outlet](const boost::system::error_code& error) {
        if (error) return;
        outlet.waiting = false;
        if (pump(outlet, false)) pump_when_ready(outlet);
    };
    if (outlet.own.is_open()) {
        outlet.own.async_wait(boost::asio::posix::descriptor_base::wait_write, ready);
    } else {
        outlet.retry.expires_after(kRetryEvery);
        outlet.retry.async_wait(ready);
    }
}

void Console::drain() {
    for (Outlet& outlet : outlets_) pump(outlet, true);
}

}  // namespace ddprun::agent
