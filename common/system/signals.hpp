#pragma once
// How this process treats a signal. System calls only: the guard, which links nothing, uses it as well.

#include <csignal>
#include <initializer_list>

namespace ddprun {

/// True for SIGHUP under nohup(1), for example.
[[nodiscard]] inline bool is_ignored(int signal) noexcept {
    struct sigaction action {};
    return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

/// A reader of our output that has gone (| head), or a limit on the size of files (ulimit -f), is no reason to end a
/// job: write(2) fails with EPIPE or EFBIG instead.
inline void ignore_failed_writes() noexcept {
    for (const int signal : {SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_IGN);
}

/// The default again, for a child before its exec: it would inherit what is ignored.
inline void heed_failed_writes() noexcept {
    for (const int signal : {SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_DFL);
}

}  // namespace ddprun
