#include "agent/last_signals.hpp"

#include <unistd.h>

#include <array>
#include <csignal>

#include "common/system/signals.hpp"

namespace ddprun::agent {
namespace {

constexpr std::array kStop{SIGINT, SIGTERM, SIGQUIT, SIGHUP};
constexpr std::array kNotify{SIGUSR1, SIGUSR2};

volatile std::sig_atomic_t final_code = 0;  // of a type that a signal handler may read

void end_now(int) { ::_exit(final_code); }

template <typename Signals>
void change_mask(int how, const Signals& signals) {
    sigset_t set;
    ::sigemptyset(&set);
    for (const int signal : signals) ::sigaddset(&set, signal);
    ::sigprocmask(how, &set, nullptr);
}

}  // namespace

void hold_stop_signals() {
    change_mask(SIG_BLOCK, kStop);
    change_mask(SIG_BLOCK, kNotify);
}

void end_on_stop_signal(int exit_code) {
    final_code = exit_code;
    for (const int signal : kNotify) ::signal(signal, SIG_IGN);
    for (const int signal : kStop) {
        if (!is_ignored(signal)) ::signal(signal, end_now);
    }
    change_mask(SIG_UNBLOCK, kStop);
    change_mask(SIG_UNBLOCK, kNotify);
}

}  // namespace ddprun::agent
