#include "common/system/process_state.hpp"

#include <grp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <vector>

#include "tests/catch.hpp"

using namespace ddprun;

TEST_CASE("the signals that a process ignores are read from its status", "[common][unit]") {
    const char* status = "Name:\tx\nSigPnd:\t0000000000000000\nSigIgn:\t0000000000001006\nSigCgt:\t0000000000004000\n";
    CHECK(parse_signal_set(status, "SigIgn", SIGINT));
    CHECK(parse_signal_set(status, "SigIgn", SIGQUIT));
    CHECK(parse_signal_set(status, "SigIgn", SIGPIPE));
    CHECK_FALSE(parse_signal_set(status, "SigIgn", SIGTERM));
    CHECK_FALSE(parse_signal_set("", "SigIgn", SIGINT));
    CHECK_FALSE(parse_signal_set("Name:\tx\nSigIgn:\t", "SigIgn", SIGINT));
    ::signal(SIGUSR2, SIG_IGN);
    CHECK(ignores_signal(::getpid(), SIGUSR2));
    ::signal(SIGUSR2, SIG_DFL);
    CHECK_FALSE(ignores_signal(::getpid(), SIGUSR2));
}

TEST_CASE("a process handles the signals for which it has a handler, or which it blocks for long", "[common][unit]") {
    const pid_t self = ::getpid();
    CHECK_FALSE(handles_signal(self, SIGUSR2));
    ::signal(SIGUSR2, SIG_IGN);
    CHECK_FALSE(handles_signal(self, SIGUSR2));
    ::signal(SIGUSR2, [](int) {});
    CHECK(handles_signal(self, SIGUSR2));
    ::signal(SIGUSR2, SIG_DFL);
    sigset_t waited_for;
    sigset_t before;
    ::sigemptyset(&waited_for);
    ::sigaddset(&waited_for, SIGUSR2);
    ::sigprocmask(SIG_BLOCK, &waited_for, &before);
    CHECK(handles_signal(self, SIGUSR2));
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    const pid_t waiting = ::fork();
    if (waiting == 0) {
        ::sigprocmask(SIG_BLOCK, &waited_for, nullptr);
        int got = 0;
        ::_exit(::sigwait(&waited_for, &got) == 0 ? 0 : 1);
    }
    bool is_seen = false;
    for (int look = 0; look < 5'000 && !is_seen; ++look) {
        is_seen = handles_signal(waiting, SIGUSR2);
        ::usleep(1'000);
    }
    CHECK(is_seen);
    ::kill(waiting, SIGUSR2);
    int status = -1;
    CHECK(::waitpid(waiting, &status, 0) == waiting);
    CHECK(status == 0);
    const pid_t ended = ::fork();
    if (ended == 0) ::_exit(0);
    ::waitpid(ended, nullptr, 0);
    CHECK_FALSE(handles_signal(ended, SIGUSR2));
}

TEST_CASE("the signals that a process ignores are read although it has many groups", "[common][unit]") {
    constexpr gid_t kFirst = 1'000'000'000;
    constexpr int kRefused = 77;
    const pid_t child = ::fork();
    if (child == 0) {
        std::vector<gid_t> groups;
        for (gid_t group = kFirst; group < kFirst + 1000; ++group) groups.push_back(group);
        if (::setgroups(groups.size(), groups.data()) != 0) ::_exit(kRefused);
        ::signal(SIGUSR2, SIG_IGN);
        ::_exit(ignores_signal(::getpid(), SIGUSR2) ? 0 : 1);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    if (WEXITSTATUS(status) == kRefused) {
        WARN("SKIPPED: only root can join groups");
        return;
    }
    CHECK(status == 0);
}
