#include "launcher/cluster_signals.hpp"

#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "common/error.hpp"
#include "common/system/signals.hpp"

namespace ddprun::launcher {
namespace {

constexpr std::array kForwarded{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGWINCH};

}  // namespace

ClusterSignals::ClusterSignals() {
    sigset_t wanted;
    ::sigemptyset(&wanted);
    ::sigaddset(&wanted, SIGCHLD);
    for (const int signal : kForwarded) {
        const bool stays_ignored = (signal == SIGHUP || signal == SIGTSTP) && is_ignored(signal);  // nohup
        if (!stays_ignored) ::sigaddset(&wanted, signal);
    }
    ::sigprocmask(SIG_BLOCK, &wanted, &mask_before_);
    signals_ = UniqueFd(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals_) throw ErrorException(system_error("cannot listen for signals", errno));
}

ClusterSignals::~ClusterSignals() { restore_mask(); }

std::optional<int> ClusterSignals::next() {
    signalfd_siginfo info{};
    if (::read(signals_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
    return static_cast<int>(info.ssi_signo);
}

}  // namespace ddprun::launcher
