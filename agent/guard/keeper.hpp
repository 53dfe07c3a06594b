#pragma once
// The keeper: ends the control group of a node when both its guard and its agent are gone, and removes it
// (docs/design/019). It is the program ddprun-guard, started as kKeeperName; it allocates nothing.

#include <sys/types.h>

#include <cstdint>

namespace ddprun::agent {

inline constexpr char kKeeperName[] = "ddprun-keeper";
/// The descriptor at which the keeper reads end-of-file when guard and agent are gone.
inline constexpr int kKeeperLifelineFd = 3;

/// Waits for end-of-file on kKeeperLifelineFd; then kills the processes of the group `path` until none is left, and
/// removes it. After a minute it prints the processes that cannot be killed and gives up. Returns the exit code.
[[nodiscard]] int run_keeper(const char* path) noexcept;

/// The file of a program: its processes keep it when ddprun is installed again, and another file has its path.
struct ProgramFile {
    std::uint32_t device_major = 0;
    std::uint32_t device_minor = 0;
    std::uint64_t inode = 0;  ///< 0: there is no such file
    friend bool operator==(const ProgramFile&, const ProgramFile&) = default;
};

/// Returns the file at `path`, with links followed.
[[nodiscard]] ProgramFile program_file(const char* path) noexcept;

/// Returns whether `pid` is a keeper: its program is `guard_program`, and it was started as kKeeperName.
[[nodiscard]] bool is_keeper(pid_t pid, const ProgramFile& guard_program) noexcept;

}  // namespace ddprun::agent
