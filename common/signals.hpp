#pragma once
// How this process treats a signal. System calls only: the guard, which links nothing, uses it as well.

#include <csignal>

namespace ddprun {

/// True for SIGHUP under nohup(1), for example.
[[nodiscard]] inline bool is_ignored(int signal) noexcept {
    struct sigaction action {};
    return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace ddprun
