// A worker for tests: does what its arguments say, one after the other, and exits with 0 at the end. Among them are the shapes of
// descendants that a process tree can hide: each waits for ever, so whoever started this program has to end it.

#include <dirent.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace {

[[noreturn]] void wait_for_ever() {
    for (;;) ::pause();
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

void child_that_ignores_signals() {
    if (::fork() == 0) {
        for (const int signal : {SIGTERM, SIGINT, SIGHUP}) std::signal(signal, SIG_IGN);
        wait_for_ever();
    }
}

/// Never the same pid for long: each parent exits after a millisecond. Ends by itself after some seconds, should a test fail.
void fork_chain() {
    if (::fork() != 0) return;
    for (int i = 0; i < 5000; ++i) {
        if (::fork() != 0) ::_exit(0);
        ::usleep(1000);
    }
    ::_exit(0);
}

/// Prints the name of every signal that arrives; SIGTERM is the last.
void report_signals() {
    sigset_t all;
    ::sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    std::printf("listening\n");
    for (int signal = 0; signal != SIGTERM;) {
        ::sigwait(&all, &signal);
        if (signal != SIGCHLD) std::printf("%s\n", ::sigabbrev_np(signal));
    }
}

/// "0 1 2" and whatever else is open, the directory of the list apart.
void print_descriptors() {
    DIR* directory = ::opendir("/proc/self/fd");
    while (const dirent* entry = ::readdir(directory)) {
        if (entry->d_name[0] != '.' && std::atoi(entry->d_name) != ::dirfd(directory)) std::printf("%s ", entry->d_name);
    }
    ::closedir(directory);
    std::printf("\n");
}

/// The signals that are blocked or ignored: both masks of a fresh process are 0.
void print_signal_masks() {
    std::FILE* status = std::fopen("/proc/self/status", "re");
    for (char line[256]; std::fgets(line, sizeof line, status) != nullptr;) {
        if (std::strncmp(line, "SigBlk:", 7) == 0 || std::strncmp(line, "SigIgn:", 7) == 0) std::fputs(line, stdout);
    }
    std::fclose(status);
}

void write_error_file(const char* text) {
    std::FILE* file = std::fopen(std::getenv("TORCHELASTIC_ERROR_FILE"), "w");
    if (file == nullptr) std::exit(99);
    std::fputs(text, file);
    std::fclose(file);
}

void act(std::string_view verb, const std::string& value) {
    if (verb == "child") child();
    else if (verb == "session") child_in_own_session();
    else if (verb == "daemon") daemon_forked_twice();
    else if (verb == "stubborn") child_that_ignores_signals();
    else if (verb == "chain") fork_chain();
    else if (verb == "wait") wait_for_ever();
    else if (verb == "signals") report_signals();
    else if (verb == "descriptors") print_descriptors();
    else if (verb == "masks") print_signal_masks();
    else if (verb == "ids") std::printf("%d %d %d\n", ::getpid(), ::getpgrp(), ::getsid(0));
    else if (verb == "env") std::printf("%s\n", std::getenv(value.c_str()) != nullptr ? std::getenv(value.c_str()) : "(unset)");
    else if (verb == "out") std::fputs(value.c_str(), stdout);
    else if (verb == "err") std::fputs(value.c_str(), stderr);
    else if (verb == "error-file") write_error_file(value.c_str());
    else if (verb == "exit") std::exit(std::atoi(value.c_str()));
    else if (verb == "raise") ::kill(::getpid(), std::atoi(value.c_str()));
    else std::exit(98);
}

}  // namespace

int main(int argc, char** argv) {
    std::setvbuf(stdout, nullptr, _IONBF, 0);   // a forked child must not hold a copy of what is unwritten
    for (int i = 1; i < argc; ++i) {
        const std::string_view argument = argv[i];
        const std::size_t equals = argument.find('=');
        act(argument.substr(0, equals), equals == std::string_view::npos ? "" : std::string(argument.substr(equals + 1)));
    }
    return 0;
}
