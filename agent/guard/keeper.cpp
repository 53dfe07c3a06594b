#include "agent/guard/keeper.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "agent/guard/control_group.hpp"
#include "agent/guard/survivors.hpp"
#include "common/clock.hpp"
#include "common/exit_codes.hpp"

namespace ddprun::agent {
namespace {

constexpr int kMaxListed = 1024;

/// Returns when every process that holds the other end has ended.
void wait_for_end_of_file() noexcept {
    for (;;) {
        char byte = 0;
        const ssize_t got = ::read(kKeeperLifelineFd, &byte, 1);
        if (got == 0 || (got < 0 && errno != EINTR)) return;
    }
}

}  // namespace

int run_keeper(const char* path) noexcept {
    sigset_t all;
    ::sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    ::prctl(PR_SET_NAME, kKeeperName);   // for ps and pgrep
    ::prctl(PR_SET_PDEATHSIG, SIGCONT);  // it may be stopped when its guard is killed
    ControlGroup group(path);
    // On a busy machine a short job may have ended, and removed its group, before this process began.
    if (!group.is_open() && errno != ENOENT) return exit_code::kInternal;
    wait_for_end_of_file();
    const TimePoint start = Clock::now();
    while (group.is_open() && group.is_populated()) {
        const Duration passed = Clock::now() - start;
        if (passed >= std::chrono::seconds(kUnkillableSeconds)) {
            static pid_t left[kMaxListed];
            const int count = group.list(left, kMaxListed);
            report_survivors(kKeeperName, {left, static_cast<std::size_t>(count)});
            return exit_code::kInfrastructure;
        }
        group.kill();  // again, because a worker may just have been forked, and joins only now
        const timespec pause = kill_interval(passed);
        ::nanosleep(&pause, nullptr);
    }
    remove_control_group(path);
    return exit_code::kSuccess;
}

ProgramFile program_file(const char* path) noexcept {
    struct statx file {};
    // Does not ask the server of a network file system, which may never answer.
    if (::statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_INO, &file) != 0) return {};
    return {file.stx_dev_major, file.stx_dev_minor, file.stx_ino};
}

bool is_keeper(pid_t pid, const ProgramFile& guard_program) noexcept {
    if (guard_program.inode == 0) return false;
    char path[64];
    // Looks at the file first: to read the arguments of a process that is stuck in the kernel may take for ever.
    std::snprintf(path, sizeof path, "/proc/%d/exe", pid);
    if (program_file(path) != guard_program) return false;
    std::snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
    char text[sizeof kKeeperName];
    const UniqueFd file(::open(path, O_RDONLY | O_CLOEXEC));
    return file && ::read(file.get(), text, sizeof text) == static_cast<ssize_t>(sizeof text) &&
           std::memcmp(text, kKeeperName, sizeof text) == 0;
}

}  // namespace ddprun::agent
