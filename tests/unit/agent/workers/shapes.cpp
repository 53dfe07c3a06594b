// A worker for tests: does what its arguments say, one after the other, and exits with 0 at the end. Some arguments
// start descendants of the kinds that are hard to find in a process tree; each waits until it is killed.

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "common/system/cpu_set.hpp"

namespace {

[[noreturn]] void wait_for_ever() {
    for (;;) ::pause();
}

void wait_for_file(const char* path) {
    while (::access(path, F_OK) != 0) ::usleep(1000);
}

void child() {
    if (::fork() == 0) wait_for_ever();
}

void child_in_own_session() {
    if (::fork() == 0) {
        ::setsid();
        wait_for_ever();
    }
}

void daemon_forked_twice() {
    const pid_t middle = ::fork();
    if (middle == 0) {
        ::setsid();
        if (::fork() == 0) wait_for_ever();
        ::_exit(0);
    }
    ::waitpid(middle, nullptr, 0);
}

/// Forks a chain of processes that each exit after a millisecond, so that the pid changes all the time. The chain ends
/// after some seconds.
void fork_chain() {
    if (::fork() != 0) return;
    for (int i = 0; i < 5000; ++i) {
        if (::fork() != 0) ::_exit(0);
        ::usleep(1000);
    }
    ::_exit(0);
}

/// Exits while a child in a session of its own traces it, like a forgotten debugger: until that child has ended, or
/// waits for it, the child alone can learn the exit code. 97: tracing is not allowed here.
[[noreturn]] void exit_traced(int code) {
    int ready[2];
    if (::pipe(ready) != 0) ::_exit(96);
    const pid_t worker = ::getpid();
    ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // else Yama allows only parents to trace
    if (::fork() == 0) {
        ::setsid();
        if (::ptrace(PTRACE_SEIZE, worker, nullptr, nullptr) != 0) ::_exit(0);
        if (::write(ready[1], "!", 1) == 1) wait_for_ever();
    }
    ::close(ready[1]);
    char byte = 0;
    ::_exit(::read(ready[0], &byte, 1) == 1 ? code : 97);  // not exit(3), in which the leak checker would trace as well
}

/// Blocks signals until report_signals().
sigset_t block_signals() {
    sigset_t all;
    ::sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    return all;
}

/// Starts a process that ignores signals from its start on: tests count processes, and signal them as soon as there are
/// enough.
void child_that_ignores_signals() {
    const sigset_t all = block_signals();
    if (::fork() == 0) {
        for (const int signal : {SIGTERM, SIGINT, SIGHUP}) std::signal(signal, SIG_IGN);
        ::sigprocmask(SIG_UNBLOCK, &all, nullptr);
        wait_for_ever();
    }
    ::sigprocmask(SIG_UNBLOCK, &all, nullptr);
}

/// Prints the name of every signal that arrives; ends after SIGTERM, or SIGPIPE if its output is not read any more.
void report_signals() {
    const sigset_t all = block_signals();
    std::printf("listening\n");
    for (int signal = 0; signal != SIGTERM && signal != SIGPIPE;) {
        ::sigwait(&all, &signal);
        if (signal != SIGCHLD) std::printf("%s\n", ::sigabbrev_np(signal));
    }
}

/// Prints the open descriptors, as "0 1 2", without that of the directory which it lists.
void print_descriptors() {
    DIR* directory = ::opendir("/proc/self/fd");
    while (const dirent* entry = ::readdir(directory)) {
        if (entry->d_name[0] != '.' && std::atoi(entry->d_name) != ::dirfd(directory))
            std::printf("%s ", entry->d_name);
    }
    ::closedir(directory);
    std::printf("\n");
}

/// Prints the masks of blocked and ignored signals: both are 0 in a new process.
void print_signal_masks() {
    std::FILE* status = std::fopen("/proc/self/status", "re");
    for (char line[256]; std::fgets(line, sizeof line, status) != nullptr;) {
        if (std::strncmp(line, "SigBlk:", 7) == 0 || std::strncmp(line, "SigIgn:", 7) == 0) std::fputs(line, stdout);
    }
    std::fclose(status);
}

/// Prints the CPUs on which it may run, and the number of its memory policy; -1: this machine does not show it.
void print_binding() {
    int policy = -1;
    ::syscall(SYS_get_mempolicy, &policy, nullptr, 0, nullptr, 0);
    std::printf("%s policy %d\n", ddprun::number_list(ddprun::allowed_cpu_set()).c_str(), policy);
}

[[noreturn]] void flood() {
    for (;;) std::puts("more than a reader takes");
}

void print_variable(const char* name) {
    const char* value = std::getenv(name);
    std::printf("%s\n", value != nullptr ? value : "(unset)");
}

void write_error_file(const char* text) {
    std::FILE* file = std::fopen(std::getenv("TORCHELASTIC_ERROR_FILE"), "w");
    if (file == nullptr) std::exit(99);
    std::fputs(text, file);
    std::fclose(file);
}

using Actions = std::map<std::string_view, std::function<void(const std::string&)>>;

const Actions kActions = {
    {"child", [](const std::string&) { child(); }},
    {"session", [](const std::string&) { child_in_own_session(); }},
    {"daemon", [](const std::string&) { daemon_forked_twice(); }},
    {"stubborn", [](const std::string&) { child_that_ignores_signals(); }},
    {"chain", [](const std::string&) { fork_chain(); }},
    {"wait", [](const std::string&) { wait_for_ever(); }},
    {"await", [](const std::string& path) { wait_for_file(path.c_str()); }},
    {"block", [](const std::string&) { block_signals(); }},
    {"signals", [](const std::string&) { report_signals(); }},
    {"descriptors", [](const std::string&) { print_descriptors(); }},
    {"binding", [](const std::string&) { print_binding(); }},
    {"masks", [](const std::string&) { print_signal_masks(); }},
    {"ids", [](const std::string&) { std::printf("%d %d %d\n", ::getpid(), ::getpgrp(), ::getsid(0)); }},
    {"flood", [](const std::string&) { flood(); }},
    {"env", [](const std::string& name) { print_variable(name.c_str()); }},
    {"out", [](const std::string& text) { std::fputs(text.c_str(), stdout); }},
    {"err", [](const std::string& text) { std::fputs(text.c_str(), stderr); }},
    {"error-file", [](const std::string& text) { write_error_file(text.c_str()); }},
    {"exit", [](const std::string& code) { std::exit(std::atoi(code.c_str())); }},
    {"exit-traced", [](const std::string& code) { exit_traced(std::atoi(code.c_str())); }},
    {"raise", [](const std::string& signal) { ::kill(::getpid(), std::atoi(signal.c_str())); }},
};

}  // namespace

/// Turns LeakSanitizer off, if there is one: it traces the process at its end, and waits for ever if a SIGCONT, which
/// an agent sends with each signal, arrives at the moment in which it attaches.
extern "C" [[gnu::visibility("default")]] int __lsan_is_turned_off() { return 1; }

int main(int argc, char** argv) {
    std::setvbuf(stdout, nullptr, _IONBF, 0);  // a forked child must not have a copy of unwritten output
    for (int i = 1; i < argc; ++i) {
        const std::string_view argument = argv[i];
        const std::size_t equals = argument.find('=');
        const auto action = kActions.find(argument.substr(0, equals));
        if (action == kActions.end()) return 98;
        action->second(equals == std::string_view::npos ? "" : std::string(argument.substr(equals + 1)));
    }
    return 0;
}
