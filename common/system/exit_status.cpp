#include "common/system/exit_status.hpp"

#include <fmt/format.h>
#include <sys/wait.h>

#include <csignal>
#include <cstring>

namespace ddprun {

ExitStatus exit_status_from_wait(int wait_status) {
    if (WIFSIGNALED(wait_status)) {
        return {ExitStatus::Kind::kSignaled, WTERMSIG(wait_status), WCOREDUMP(wait_status) != 0};
    }
    return {ExitStatus::Kind::kExited, WEXITSTATUS(wait_status), false};
}

bool is_violent(const ExitStatus& status) {
    if (status.kind != ExitStatus::Kind::kSignaled) return false;
    switch (status.number) {
        case SIGKILL:
        case SIGSEGV:
        case SIGBUS:
        case SIGILL:
        case SIGFPE: return true;
        default: return false;
    }
}

std::string signal_name(int signal) {
    if (const char* abbreviation = ::sigabbrev_np(signal)) return fmt::format("SIG{}", abbreviation);
    return fmt::format("signal {}", signal);
}

std::string to_string(const ExitStatus& status) {
    return (status.kind == ExitStatus::Kind::kSignaled ? "was " : "") + participle(status);
}

std::string participle(const ExitStatus& status) {
    if (status.kind == ExitStatus::Kind::kExited) return fmt::format("exited with code {}", status.number);
    return fmt::format("killed by {}{}", signal_name(status.number), status.core_dumped ? " (core dumped)" : "");
}

}  // namespace ddprun
