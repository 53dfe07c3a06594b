#include "agent/workers/strays.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>

#include "agent/guard/children.hpp"
#include "common/system/process_state.hpp"

namespace ddprun::agent {
namespace {

constexpr std::size_t kMaxChildren = 8192;  // per call; a later call sees the others

}  // namespace

void adopt_strays() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

std::vector<pid_t> Strays::list(const std::vector<pid_t>& workers) {
    std::vector<pid_t> children(kMaxChildren);
    const int count = list_children(children.data(), static_cast<int>(kMaxChildren));
    children.resize(static_cast<std::size_t>(std::max(0, count)));
    std::erase_if(children, [&](pid_t child) { return std::ranges::binary_search(workers, child); });
    return children;
}

void Strays::set_signal(int signal) {
    signal_ = signal;
    signalled_.clear();
}

/// Returns the signal for `stray`; 0: it got it with its process group. A second SIGINT could interrupt the checkpoint
/// that a program writes because of the first one. Shells make their background processes ignore SIGINT and SIGQUIT;
/// those get SIGTERM instead.
int Strays::signal_for(pid_t stray, const std::vector<pid_t>& workers) const {
    if (signal_ == SIGTERM || signal_ == SIGKILL) return signal_;
    if (ignores_signal(stray, signal_)) return SIGTERM;
    return std::ranges::binary_search(workers, ::getpgid(stray)) ? 0 : signal_;
}

void Strays::sweep(const std::vector<pid_t>& workers) {
    for (const pid_t stray : list(workers)) {
        if (::waitpid(stray, nullptr, WNOHANG) == stray) {
            signalled_.erase(stray);
        } else if (signal_ != 0 && signalled_.insert(stray).second) {
            if (const int signal = signal_for(stray, workers); signal != 0) ::kill(stray, signal);
            ::kill(stray, SIGCONT);  // a stopped process takes the signal only when it continues
        }
    }
}

}  // namespace ddprun::agent
