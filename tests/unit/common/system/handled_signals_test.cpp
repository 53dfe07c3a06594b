// Which signals another process handles.
#include "common/system/handled_signals.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/catch.hpp"

using namespace ddprun;

namespace {

/// A child that has done `prepare`, and waits.
class WaitingChild {
public:
    explicit WaitingChild(void (*prepare)()) {
        int ready[2];
        REQUIRE(::pipe(ready) == 0);
        pid_ = ::fork();
        if (pid_ == 0) {
            prepare();
            [[maybe_unused]] const ssize_t written = ::write(ready[1], "x", 1);
            for (;;) ::pause();
        }
        char byte = 0;
        REQUIRE(::read(ready[0], &byte, 1) == 1);
        ::close(ready[0]);
        ::close(ready[1]);
    }
    ~WaitingChild() {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    WaitingChild(const WaitingChild&) = delete;
    WaitingChild& operator=(const WaitingChild&) = delete;
    [[nodiscard]] pid_t pid() const { return pid_; }

private:
    pid_t pid_ = -1;
};

}  // namespace

TEST_CASE("a signal is handled by a handler or by waiting for it, and by no other means", "[common]") {
    const WaitingChild plain([] { ::signal(SIGUSR1, SIG_DFL); });
    CHECK_FALSE(handles_signal(plain.pid(), SIGUSR1));
    const WaitingChild handler([] { ::signal(SIGUSR1, [](int) {}); });
    CHECK(handles_signal(handler.pid(), SIGUSR1));
    CHECK_FALSE(handles_signal(handler.pid(), SIGUSR2));
    const WaitingChild ignoring([] { ::signal(SIGUSR1, SIG_IGN); });
    CHECK_FALSE(handles_signal(ignoring.pid(), SIGUSR1));
    const WaitingChild waiting([] {
        sigset_t signals;
        ::sigemptyset(&signals);
        ::sigaddset(&signals, SIGUSR1);
        ::sigprocmask(SIG_BLOCK, &signals, nullptr);
    });
    CHECK(handles_signal(waiting.pid(), SIGUSR1));
}

TEST_CASE("of a process that has ended it is not known which signals it handles", "[common]") {
    pid_t ended = -1;
    {
        const WaitingChild child([] {});
        ended = child.pid();
    }
    CHECK(handles_signal(ended, SIGUSR1));
}
