#include "worker_lib/src/util/process_watch.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <string>

#include "common/system/process_state.hpp"
#include "ddp/error.hpp"
#include "worker_lib/src/util/error.hpp"

namespace ddp::detail {

using ddprun::UniqueFd;

UniqueFd watch_process(pid_t pid, std::string_view name, int rank) {
    if (pid == 0 || pid == ::getpid()) return UniqueFd();
    UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!process && errno == ESRCH)
        throw Error(ErrorCode::PeerLost, fmt::format("{} ended while the group was forming", name), {rank});
    if (!process && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
        throw_errno(fmt::format("cannot watch the process of {}", name), errno);
    return process;
}

bool has_ended(const UniqueFd& process) {
    if (!process) return false;
    pollfd one{.fd = process.get(), .events = POLLIN, .revents = 0};
    return ::poll(&one, 1, 0) > 0 && (one.revents & POLLIN) != 0;
}

/// Reads the pid from the descriptor: a member publishes the pid of its own namespace.
pid_t stopped_pid(const UniqueFd& process) {
    if (!process) return 0;
    std::ifstream facts(fmt::format("/proc/self/fdinfo/{}", process.get()));
    for (std::string line; std::getline(facts, line);) {
        pid_t pid = 0;
        if (std::sscanf(line.c_str(), "Pid: %d", &pid) != 1 || pid <= 0) continue;  // -1: it has ended
        return ddprun::process_state(pid) == ddprun::ProcessState::kStopped ? pid : 0;
    }
    return 0;
}

}  // namespace ddp::detail
