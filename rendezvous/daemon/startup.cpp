#include "rendezvous/daemon/startup.hpp"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "common/system/signals.hpp"
#include "common/text/escape.hpp"

namespace ddprun::daemon {
namespace {

/// Sends one datagram to the Unix socket `name`, in at most 1 s. Returns 0 for success, else the errno; EAGAIN: the
/// socket did not take it in that time.
int send_datagram(std::string_view name, std::string_view text) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (name.size() < 2 || (name.front() != '/' && name.front() != '@')) return EINVAL;
    if (name.size() >= sizeof(address.sun_path)) return ENAMETOOLONG;
    name.copy(address.sun_path, name.size());
    if (name.front() == '@') address.sun_path[0] = '\0';  // an abstract name, not ended by a zero byte
    const std::size_t length = offsetof(sockaddr_un, sun_path) + name.size() + (name.front() == '/' ? 1 : 0);

    const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!socket) return errno;
    const timeval timeout{.tv_sec = 1, .tv_usec = 0};  // a manager that does not read must not block the store
    ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    const auto* const generic = reinterpret_cast<const sockaddr*>(&address);
    const auto sent =
        ::sendto(socket.get(), text.data(), text.size(), MSG_NOSIGNAL, generic, static_cast<socklen_t>(length));
    return sent < 0 ? errno : 0;
}

}  // namespace

void prepare_process() {
    ignore_failed_writes();

    rlimit files{};
    if (::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        if (::setrlimit(RLIMIT_NOFILE, &files) != 0)
            spdlog::warn("cannot raise the limit of open files: {}", std::strerror(errno));
    }
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);        // lowering a limit is always allowed
    ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);  // known since Linux 3.5; nothing is executed here anyway
}

bool log_to_file(const std::string& path) {
    try {
        auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
        sink->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
        spdlog::default_logger()->sinks().push_back(std::move(sink));
        spdlog::default_logger()->flush_on(spdlog::level::info);
        return true;
    } catch (const spdlog::spdlog_ex& error) {
        spdlog::error("cannot write --log-file {}: {}", path, error.what());
        return false;
    }
}

void report_ready(UniqueFd fd, std::string_view line) {
    std::size_t written = 0;
    while (written < line.size()) {
        const ssize_t n = ::write(fd.get(), line.data() + written, line.size() - written);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            const bool has_ended = errno == EPIPE;  // the reader: a signal ended the program that started this one
            spdlog::log(has_ended ? spdlog::level::info : spdlog::level::warn, "cannot write to --ready-fd: {}",
                        std::strerror(errno));
            return;
        }
        written += static_cast<std::size_t>(n);
    }
}

void notify_service_manager(std::string_view state) {
    const char* const name = std::getenv("NOTIFY_SOCKET");
    if (name == nullptr || *name == '\0') return;
    const int error = send_datagram(name, state);
    if (error == 0) return;
    spdlog::warn(
        "cannot send {} to the service manager through NOTIFY_SOCKET={}: {}. It may take this service for one that "
        "does not start",
        state, log_line(name), std::strerror(error));
}

}  // namespace ddprun::daemon
