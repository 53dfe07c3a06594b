#pragma once
// Reads and sets how this process treats signals. Only makes system calls: the guard, which links nothing, uses it too.

#include <csignal>
#include <initializer_list>

namespace ddprun {

/// Returns whether this process ignores `signal`, as SIGHUP under nohup(1).
[[nodiscard]] inline bool is_ignored(int signal) noexcept {
    struct sigaction action {};
    return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

/// Makes write(2) fail with EPIPE or EFBIG where a signal would end this process: a reader that has ended (| head), or
/// a limit on the size of files (ulimit -f), is no reason to end a job.
inline void ignore_failed_writes() noexcept {
    for (const int signal : {SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_IGN);
}

/// Undoes ignore_failed_writes() in a child before its exec, which would inherit ignored signals.
inline void notice_failed_writes() noexcept {
    for (const int signal : {SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_DFL);
}

}  // namespace ddprun
