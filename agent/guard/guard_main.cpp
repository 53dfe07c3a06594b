// ddprun-guard --agent-pid PID --lifeline FD
//
// The guard is the last defence against orphans (docs/design/001). The process that forked the agent becomes the guard
// by exec, and is a child subreaper by then: every process that the agent leaves behind becomes its child. The guard
// forwards signals to the agent and returns the agent's exit code; at the end it kills and reaps until no child is
// left. It is linked statically and allocates nothing, so that it works on a node that has no memory left. The agent
// reads end-of-file on the lifeline when the guard has ended. A guard of the launcher of emulated nodes does the same
// for it.

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <initializer_list>

#include "agent/guard/children.hpp"
#include "common/exit_codes.hpp"
#include "common/system/signals.hpp"
#include "common/system/standard_fds.hpp"

namespace {

using namespace ddprun;

constexpr int kMaxChildren = 1024;       // per list; the next list contains the others
constexpr long kUnkillableSeconds = 60;  // a process in uninterruptible sleep does not die of SIGKILL
constexpr long kSweepNanoseconds = 2'000'000;

/// A line for stderr, built without allocation; text that does not fit is cut.
struct Line {
    char text[256] = "";
    std::size_t size = 0;

    Line& add(const char* string) {
        while (*string != '\0' && size < sizeof text - 1) text[size++] = *string++;
        return *this;
    }
    Line& add(long number) {
        char digits[24];
        int first = sizeof digits;
        digits[--first] = '\0';
        do digits[--first] = static_cast<char>('0' + number % 10);
        while ((number /= 10) > 0);
        return add(digits + first);
    }
    void print() {
        text[size++] = '\n';
        // A failure to print cannot be printed.
        [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, text, size);
    }
};

struct Arguments {
    pid_t agent = -1;
    int lifeline = -1;
};

Arguments parse(int argc, char** argv) {
    Arguments arguments;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (std::strcmp(argv[i], "--agent-pid") == 0) arguments.agent = static_cast<pid_t>(std::atol(argv[i + 1]));
        if (std::strcmp(argv[i], "--lifeline") == 0) arguments.lifeline = static_cast<int>(std::atol(argv[i + 1]));
    }
    return arguments;
}

/// Blocks the signals that are forwarded, and SIGCHLD, so that one loop takes them in order. Signals of a crash of this
/// process, and those that stop a background process that uses its terminal, stay unblocked.
sigset_t block_signals() {
    sigset_t signals;
    ::sigfillset(&signals);
    for (const int alone : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGTTIN, SIGTTOU}) {
        ::sigdelset(&signals, alone);
    }
    ::sigprocmask(SIG_SETMASK, &signals, nullptr);
    ::signal(SIGCHLD, SIG_DFL);  // inherited as ignored, it would make the kernel reap and lose the exit code
    return signals;
}

/// Asks the out-of-memory killer to prefer workers to the guard. That needs a privilege, so it often fails.
void make_unlikely_oom_victim() {
    const int fd = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0) return;
    [[maybe_unused]] const ssize_t ignored = ::write(fd, "-900", 4);
    ::close(fd);
}

/// Stops this process, which the shell sees, until a SIGCONT; the agent stops its workers meanwhile, but goes on
/// itself. The kernel ignores SIGTSTP where no shell could continue the process: then the agent goes on at once.
void stop_until_continued(pid_t agent) {
    ::kill(agent, SIGTSTP);
    sigset_t pending;
    ::sigpending(&pending);
    if (::sigismember(&pending, SIGCONT) == 1) return;  // raise() would discard it; follow() forwards it
    sigset_t stop;
    ::sigemptyset(&stop);
    ::sigaddset(&stop, SIGTSTP);
    ::raise(SIGTSTP);
    ::sigprocmask(SIG_UNBLOCK, &stop, nullptr);  // stops here
    ::sigprocmask(SIG_BLOCK, &stop, nullptr);
    ::kill(agent, SIGCONT);
}

/// Forwards signals to the agent until it has ended; returns its wait status.
int follow(pid_t agent, const sigset_t& signals) {
    const bool ignores_hangup = is_ignored(SIGHUP);  // nohup
    const bool ignores_stop = is_ignored(SIGTSTP);   // started by a shell without job control
    for (;;) {
        int status = 0;
        for (pid_t ended; (ended = ::waitpid(-1, &status, WNOHANG)) != 0;) {
            if (ended == agent) return status;
            if (ended < 0) return exit_code::kInternal << 8;  // there is no child: PID is not a child of this process
        }
        const int signal = ::sigwaitinfo(&signals, nullptr);
        if (signal <= 0 || signal == SIGCHLD || signal == SIGPIPE) continue;
        if (signal == SIGHUP && ignores_hangup) continue;
        if (signal == SIGTSTP) {
            if (!ignores_stop) stop_until_continued(agent);
            continue;
        }
        ::kill(agent, signal);  // a zombie until we reap it, so the pid cannot have passed to another process
    }
}

long seconds_now() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

/// Reaps the children that have ended and returns their number. Sets `left` if any child is left.
int reap_ended(bool& left) {
    int reaped = 0;
    pid_t ended = 0;
    while ((ended = ::waitpid(-1, nullptr, WNOHANG)) > 0) ++reaped;
    left = ended == 0;
    return reaped;
}

/// Kills and reaps every descendant: one that loses its parent becomes a child of this process, so a later round finds
/// it. Returns how many were reaped. After a minute it prints the pid of a process that cannot be killed and gives up.
int kill_descendants() {
    static pid_t children[kMaxChildren];
    sigset_t child_ended;
    ::sigemptyset(&child_ended);
    ::sigaddset(&child_ended, SIGCHLD);
    const long give_up = seconds_now() + kUnkillableSeconds;
    int reaped = 0;
    for (bool left = true;;) {
        const int count = agent::list_children(children, kMaxChildren);
        for (int i = 0; i < count; ++i) ::kill(children[i], SIGKILL);
        reaped += reap_ended(left);
        if (!left) return reaped;
        if (seconds_now() >= give_up) {
            Line()
                .add("ddprun-guard: process ")
                .add(count > 0 ? children[0] : 0L)
                .add(
                    " survives SIGKILL (it waits in the kernel, see its state D in ps); leaving it behind. "
                    "This node may need a reboot.")
                .print();
            return reaped;
        }
        const timespec pause{0, kSweepNanoseconds};
        ::sigtimedwait(&child_ended, nullptr, &pause);
    }
}

}  // namespace

int main(int argc, char** argv) {
    open_standard_fds();
    const sigset_t signals = block_signals();
    const Arguments arguments = parse(argc, argv);
    if (arguments.agent <= 1 || arguments.lifeline < 0) {
        Line().add("ddprun-guard: only ddprun can start this program").print();
        return exit_code::kUsage;
    }
    ::fcntl(arguments.lifeline, F_SETFD, FD_CLOEXEC);
    make_unlikely_oom_victim();

    const int status = follow(arguments.agent, signals);
    const int left_behind = kill_descendants();
    if (!WIFSIGNALED(status)) return WEXITSTATUS(status);

    const int signal = WTERMSIG(status);
    const char* name = ::sigabbrev_np(signal);
    Line line;
    line.add("ddprun-guard: ddprun (pid ").add(arguments.agent).add(") was killed by ");
    if (name != nullptr)
        line.add("SIG").add(name);
    else
        line.add("signal ").add(signal);
    line.add("; stopped ").add(left_behind).add(left_behind == 1 ? " process it left" : " processes it left");
    if (signal == SIGKILL) line.add(". A user or a scheduler sent it, or memory ran out: see dmesg | grep -i oom");
    line.print();
    return exit_code::kSignalBase + signal;
}
