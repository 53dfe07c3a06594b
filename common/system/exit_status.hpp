#pragma once
// ExitStatus: how a process ended. Every waitpid result becomes one at once; only exit_code() turns the two kinds into
// one number.

#include <string>

#include "common/exit_codes.hpp"

namespace ddprun {

struct ExitStatus {
    enum class Kind { kExited, kSignaled };
    Kind kind = Kind::kExited;
    int number = 0;  ///< the exit code, or the signal
    bool core_dumped = false;

    [[nodiscard]] bool success() const { return kind == Kind::kExited && number == 0; }
    /// Returns the code that a shell reports: the exit code, or 128 plus the signal.
    [[nodiscard]] int exit_code() const { return kind == Kind::kExited ? number : exit_code::kSignalBase + number; }
    friend bool operator==(const ExitStatus&, const ExitStatus&) = default;
};

/// Returns whether KILL (also sent by the kernel when memory runs out), SEGV, BUS, ILL or FPE ended the process. No
/// launcher sends these first. ABRT does not count, because libraries end with it when they lose a peer.
[[nodiscard]] bool is_violent(const ExitStatus& status);

/// Returns the exit status for a status word of waitpid(2).
[[nodiscard]] ExitStatus exit_status_from_wait(int wait_status);

/// Returns "SIGKILL" for 9, and "signal 77" for a number without a name.
[[nodiscard]] std::string signal_name(int signal);

/// Returns "exited with code 3" or "was killed by SIGSEGV (core dumped)".
[[nodiscard]] std::string to_string(const ExitStatus& status);
/// Returns "exited with code 3" or "killed by SIGSEGV (core dumped)".
[[nodiscard]] std::string participle(const ExitStatus& status);

}  // namespace ddprun
