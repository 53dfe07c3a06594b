// ddprun-guard --agent-pid PID --lifeline FD [--group PATH --keeper PID --keeper-lifeline FD] [--pid-namespace 1]
//              [--older-session SID] [--older-child PID]…
// ddprun-keeper PATH    (the same program under another name, see keeper.hpp)
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

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <initializer_list>

#include "agent/guard/children.hpp"
#include "agent/guard/control_group.hpp"
#include "agent/guard/descendants.hpp"
#include "agent/guard/keeper.hpp"
#include "agent/guard/line.hpp"
#include "agent/guard/process_look.hpp"
#include "agent/guard/survivors.hpp"
#include "agent/guard/terminal_modes.hpp"
#include "common/clock.hpp"
#include "common/exit_codes.hpp"
#include "common/system/signals.hpp"
#include "common/system/standard_fds.hpp"

namespace {

using namespace ddprun;
using agent::ControlGroup;
using agent::Line;
using agent::Spared;

constexpr int kMaxChildren = 1 << 16;  // per list; the next list contains the others
/// The time after which descendants that are left count as a fork bomb. To look through all processes costs more than
/// to kill the children, which is enough in all other cases.
constexpr std::chrono::milliseconds kFreezeAfter{200};

struct Arguments {
    pid_t agent = -1;
    int lifeline = -1;
    const char* group = nullptr;  ///< the control group of the fence; null: none
    int keeper_lifeline = -1;
    bool pid_namespace = false;  ///< the agent is process 1 of one
    Spared spared;
};

Arguments parse(int argc, char** argv) {
    Arguments arguments;
    for (int i = 1; i + 1 < argc; i += 2) {
        const auto is = [&](const char* name) { return std::strcmp(argv[i], name) == 0; };
        const int number = std::atoi(argv[i + 1]);
        if (is("--agent-pid")) arguments.agent = number;
        if (is("--lifeline")) arguments.lifeline = number;
        if (is("--group")) arguments.group = argv[i + 1];
        if (is("--keeper")) arguments.spared.keeper = number;
        if (is("--keeper-lifeline")) arguments.keeper_lifeline = number;
        if (is("--pid-namespace")) arguments.pid_namespace = number != 0;
        if (is("--older-session")) arguments.spared.older_session = number;
        if (is("--older-child")) arguments.spared.add_older(number);
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

/// Appends how a process ended: "was killed by SIGKILL".
Line& add_end(Line& line, int status) {
    if (WIFEXITED(status)) return line.add("has ended with code ").add(static_cast<long>(WEXITSTATUS(status)));
    const char* name = ::sigabbrev_np(WTERMSIG(status));
    line.add("was killed by ");
    return name != nullptr ? line.add("SIG").add(name) : line.add("signal ").add(static_cast<long>(WTERMSIG(status)));
}

/// Reports that the keeper has ended before the agent, and forgets it: its pid may pass to another process.
void report_lost_keeper(Spared& spared, int status) {
    Line line;
    line.add("ddprun-guard: ddprun-keeper (pid ").add(static_cast<long>(spared.keeper)).add(") ");
    add_end(line, status)
        .add(". The job goes on; restart ddprun on this node to have a keeper again: ")
        .add("without it, workers are left if ddprun and ddprun-guard are killed at once")
        .print();
    spared.keeper = 0;
}

/// Forwards signals to the agent until it has ended; returns its wait status.
int follow(pid_t agent, Spared& spared, const sigset_t& signals) {
    const bool ignores_hangup = is_ignored(SIGHUP);  // nohup
    const bool ignores_stop = is_ignored(SIGTSTP);   // started by a shell without job control
    for (;;) {
        int status = 0;
        for (pid_t ended; (ended = ::waitpid(-1, &status, WNOHANG)) != 0;) {
            if (ended == agent) return status;
            spared.forget(ended);
            if (ended == spared.keeper) report_lost_keeper(spared, status);
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

/// Reaps the children that have ended and returns their number, without the keeper. Sets `left` if any child is left.
int reap_ended(Spared& spared, bool& left) {
    int reaped = 0;
    pid_t ended = 0;
    while ((ended = ::waitpid(-1, nullptr, WNOHANG)) > 0) {
        spared.forget(ended);
        if (ended == spared.keeper)
            spared.keeper = 0;
        else
            ++reaped;
    }
    left = ended == 0;
    return reaped;
}

/// Kills and reaps every descendant: one that loses its parent becomes a child of this process, so a later round finds
/// it. Returns how many were reaped. Waits for the keeper. After a minute it prints the processes that are left and
/// gives up.
int kill_descendants(Spared& spared, const ControlGroup& group) {
    static pid_t children[kMaxChildren];
    sigset_t child_ended;
    ::sigemptyset(&child_ended);
    ::sigaddset(&child_ended, SIGCHLD);
    const TimePoint start = Clock::now();
    int reaped = 0;
    for (bool left = true;;) {
        const int listed = std::max(0, agent::list_children(children, kMaxChildren));
        const bool only_older =
            listed > 0 && std::all_of(children, children + listed, [&](pid_t child) { return spared.is_older(child); });
        pid_t* const end =
            std::remove_if(children, children + listed, [&](pid_t child) { return spared.contains(child); });
        std::for_each(children, end, [](pid_t child) { ::kill(child, SIGKILL); });
        reaped += reap_ended(spared, left);
        if (!left || only_older) return reaped;
        const Duration passed = Clock::now() - start;
        if (passed >= std::chrono::seconds(agent::kUnkillableSeconds)) {
            agent::report_survivors("ddprun-guard", {children, end});
            return reaped;
        }
        if (passed >= kFreezeAfter && !group.is_open()) agent::freeze_and_kill_descendants(spared);
        const timespec pause = agent::kill_interval(passed);
        ::sigtimedwait(&child_ended, nullptr, &pause);
    }
}

/// Returns ddprund if it is a child of this process; 0: it is not.
pid_t find_daemon(const Spared& spared) {
    for (std::size_t i = 0; i < spared.older_count; ++i) {
        if (std::strcmp(agent::look_at(spared.older[i]).name, "ddprund") == 0) return spared.older[i];
    }
    return 0;
}

/// Waits for the end of ddprund, which is a child of this process: the init process of a container, with which it would
/// end although it serves other nodes. SIGTERM, SIGINT or SIGQUIT ends the wait.
void wait_for_daemon(pid_t daemon, const sigset_t& signals) {
    Line()
        .add("ddprun-guard: this node has ended; waiting for ddprund (pid ")
        .add(static_cast<long>(daemon))
        .add("), which serves the other nodes of the job and would end with this container. SIGTERM ends it")
        .print();
    while (::waitpid(daemon, nullptr, WNOHANG) == 0) {
        const int signal = ::sigwaitinfo(&signals, nullptr);
        if (signal == SIGTERM || signal == SIGINT || signal == SIGQUIT) return;
    }
}

void print_end_by_signal(const Arguments& arguments, int status, int left_behind) {
    Line line;
    line.add("ddprun-guard: ddprun (pid ").add(static_cast<long>(arguments.agent)).add(") ");
    add_end(line, status);
    if (arguments.pid_namespace)  // the kernel has ended and reaped them
        line.add("; the processes it left have ended with its pid namespace");
    else
        line.add("; stopped ")
            .add(static_cast<long>(left_behind))
            .add(left_behind == 1 ? " process it left" : " processes it left");
    if (WTERMSIG(status) == SIGKILL)
        line.add(". A user or a scheduler sent it, or memory ran out: see dmesg | grep -i oom");
    line.print();
}

int run_guard(const Arguments& arguments, const sigset_t& signals) {
    ::fcntl(arguments.lifeline, F_SETFD, FD_CLOEXEC);
    make_unlikely_oom_victim();
    const agent::TerminalModes terminal_modes;
    ControlGroup group = arguments.group != nullptr ? ControlGroup(arguments.group) : ControlGroup();
    Spared spared = arguments.spared;
    spared.guard_program = agent::program_file("/proc/self/exe");

    const int status = follow(arguments.agent, spared, signals);
    if (group.is_open()) group.kill();
    if (spared.keeper > 0) {
        ::close(arguments.keeper_lifeline);
        ::kill(spared.keeper, SIGCONT);  // a scheduler may have suspended it with the rest of the job
    }
    const int left_behind = kill_descendants(spared, group);
    if (arguments.group != nullptr) agent::remove_control_group(arguments.group);  // if the keeper was killed
    if (status != 0) terminal_modes.restore();
    if (WIFSIGNALED(status)) print_end_by_signal(arguments, status, left_behind);
    const pid_t daemon = ::getpid() == 1 ? find_daemon(spared) : 0;
    if (daemon > 0) wait_for_daemon(daemon, signals);
    return WIFSIGNALED(status) ? exit_code::kSignalBase + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

int main(int argc, char** argv) {
    open_standard_fds();
    if (argc == 2 && std::strcmp(argv[0], agent::kKeeperName) == 0) return agent::run_keeper(argv[1]);
    const sigset_t signals = block_signals();
    const Arguments arguments = parse(argc, argv);
    if (arguments.agent > 1 && arguments.lifeline >= 0) return run_guard(arguments, signals);
    Line().add("ddprun-guard: only ddprun can start this program").print();
    return exit_code::kUsage;
}
