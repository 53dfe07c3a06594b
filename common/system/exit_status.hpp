#pragma once
// ExitStatus: how a process ended. A waitpid result becomes one at once; only exit_code() folds the two kinds into one number.

#include <string>

#include "common/exit_codes.hpp"

namespace ddprun {

struct ExitStatus {
    enum class Kind { kExited, kSignaled };
    Kind kind = Kind::kExited;
    int number = 0;           ///< the exit code, or the signal
    bool core_dumped = false;

    [[nodiscard]] bool success() const { return kind == Kind::kExited && number == 0; }
    /// As a shell would say it: the code, or 128 plus the signal.
    [[nodiscard]] int exit_code() const {
        return kind == Kind::kExited ? number : exit_code::kSignalBase + number;
    }
    friend bool operator==(const ExitStatus&, const ExitStatus&) = default;
};

/// Killed by a signal that no healthy process sends to itself and no launcher sends first: KILL (also by the kernel when memory
/// runs out), SEGV, BUS, ILL, FPE. Not ABRT, which is how libraries give up when a peer is gone.
[[nodiscard]] bool is_violent(const ExitStatus& status);

/// From the status word of waitpid(2) or the fields of waitid(2).
[[nodiscard]] ExitStatus exit_status_from_wait(int wait_status);

/// "SIGKILL" for 9; "signal 77" for a number without a name.
[[nodiscard]] std::string signal_name(int signal);

/// "exited with code 3" or "was killed by SIGSEGV (core dumped)".
[[nodiscard]] std::string to_string(const ExitStatus& status);

}  // namespace ddprun
