#include "agent/guard/keeper.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
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
constexpr long kPauseNanoseconds = 1'000'000;

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
    ::prctl(PR_SET_NAME, kKeeperName);  // for ps and pgrep
    const ControlGroup group(path);
    if (!group.is_open()) return exit_code::kInternal;
    wait_for_end_of_file();
    const TimePoint give_up = Clock::now() + std::chrono::seconds(kUnkillableSeconds);
    while (group.is_populated()) {
        if (Clock::now() >= give_up) {
            static pid_t left[kMaxListed];
            const int count = group.list(left, kMaxListed);
            report_survivors(kKeeperName, {left, static_cast<std::size_t>(count)});
            return exit_code::kInfrastructure;
        }
        group.kill();  // again, because a worker may just have been forked, and joins only now
        const timespec pause{0, kPauseNanoseconds};
        ::nanosleep(&pause, nullptr);
    }
    remove_control_group(path);
    return exit_code::kSuccess;
}

bool is_keeper(pid_t pid, const char* guard_program) noexcept {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
    char text[4096];
    const UniqueFd file(::open(path, O_RDONLY | O_CLOEXEC));
    if (!file || ::read(file.get(), text, sizeof text) < static_cast<ssize_t>(sizeof kKeeperName)) return false;
    if (std::memcmp(text, kKeeperName, sizeof kKeeperName) != 0) return false;
    std::snprintf(path, sizeof path, "/proc/%d/exe", pid);
    const ssize_t size = ::readlink(path, text, sizeof text - 1);
    if (size <= 0) return false;
    text[size] = '\0';
    return std::strcmp(text, guard_program) == 0;
}

}  // namespace ddprun::agent
