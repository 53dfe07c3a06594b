#pragma once
// Reads the state, the parent and the signal handling of a process from /proc: for the diagnosis of a job that makes no
// progress, and for ending processes.

#include <sys/types.h>

#include <string>
#include <string_view>

namespace ddprun {

enum class ProcessState {
    kRunning,
    kStopped,     ///< by a signal or a debugger
    kInKernel,    ///< state D, which survives SIGKILL
    kEnded,       ///< or a zombie
    kUnknown,     ///< /proc cannot be read
    kNotStarted,  ///< of a process that is still to be started; process_state() never returns it
};

/// Returns "running", "stopped", "in the kernel", "ended", "unknown" or "not started yet".
[[nodiscard]] std::string to_string(ProcessState state);

[[nodiscard]] ProcessState process_state(pid_t pid);

/// Returns the same from the text of /proc/PID/stat. Pure.
[[nodiscard]] ProcessState parse_process_state(std::string_view stat);

/// Returns the parent of a process; -1 if there is no such process or /proc cannot be read.
[[nodiscard]] pid_t parent_of(pid_t pid);

/// Returns whether a process ignores `signal`; false if there is no such process or /proc cannot be read.
[[nodiscard]] bool ignores_signal(pid_t pid, int signal);

/// Returns whether a process has a handler for `signal`, waits for signals, or blocks this one for longer than a
/// moment: then the signal does not end it. False as above. Takes up to 20 ms if the signal is blocked or a thread
/// runs.
[[nodiscard]] bool handles_signal(pid_t pid, int signal);

/// Returns whether `signal` is in a set of signals in the text of /proc/PID/status, such as "SigIgn". Pure.
[[nodiscard]] bool parse_signal_set(std::string_view status, std::string_view set, int signal);

/// Returns whether `pid` is `ancestor` or a descendant of it; false if a process between them has ended.
[[nodiscard]] bool is_below(pid_t pid, pid_t ancestor);

}  // namespace ddprun
