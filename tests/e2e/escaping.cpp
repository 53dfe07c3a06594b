// A worker whose processes try to outlive the job. Its local rank chooses the way; every process that it starts
// inherits an abstract socket, so that the name stays bound until the last of them has ended, also of those that a look
// at /proc would miss. "escaping wait" only waits; "escaping bomb" forks for ever.

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

namespace {

constexpr int kChainLinks = 20'000;  // a chain that survives ends by itself after a minute
constexpr unsigned kBombSeconds = 60;

[[noreturn]] void wait_for_ever() {
    for (;;) ::pause();
}

void ignore_signals() {
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) std::signal(signal, SIG_IGN);
}

/// Binds the name of this rank. The descriptor is not closed on exec, and never closed here.
bool bind_mark() {
    const std::string name = fmt::format("ddprun-escape-{}-{}", std::getenv("DDPRUN_TEST"), std::getenv("RANK"));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof address.sun_path - 1);  // after a zero byte: not a file
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    const int socket = ::socket(AF_UNIX, SOCK_DGRAM, 0);
    return ::bind(socket, reinterpret_cast<const sockaddr*>(&address), size) == 0;
}

void in_a_session() {
    if (::fork() != 0) return;
    ::setsid();
    wait_for_ever();
}

void forked_twice() {
    const pid_t middle = ::fork();
    if (middle == 0) {
        ::setsid();
        if (::fork() == 0) wait_for_ever();
        ::_exit(0);
    }
    ::waitpid(middle, nullptr, 0);
}

void with_ignored_signals() {
    if (::fork() != 0) return;
    ignore_signals();
    wait_for_ever();
}

/// Forks processes that each end after a millisecond, so that the pid changes all the time.
void in_a_chain() {
    if (::fork() != 0) return;
    for (int i = 0; i < kChainLinks; ++i) {
        if (::fork() != 0) ::_exit(0);
        ::usleep(1000);
    }
    ::_exit(0);
}

void by_vfork() {
    if (::vfork() == 0) {
        ::execl("/proc/self/exe", "escaping", "wait", nullptr);
        ::_exit(127);
    }
}

void below_nohup() {
    if (::fork() != 0) return;
    ::execlp("nohup", "nohup", "sh", "-c", "while :; do sleep 1; done", nullptr);
    ::_exit(127);
}

/// Leaves a process whose first thread has ended, and which ps shows as a zombie.
void with_ended_leader() {
    if (::fork() != 0) return;
    std::thread([] { wait_for_ever(); }).detach();
    ::pthread_exit(nullptr);
}

constexpr std::array kWays{in_a_session, forked_twice, with_ignored_signals, in_a_chain,
                           by_vfork,     below_nohup,  with_ended_leader};

/// Fills each place that the limit of processes leaves, with processes that no signal to a group reaches.
[[noreturn]] void explode() {
    ::alarm(kBombSeconds);
    for (;;) {
        if (::fork() == 0) {
            ::alarm(kBombSeconds);
            ::setsid();
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view task = argc > 1 ? argv[1] : "";
    if (task == "wait") wait_for_ever();
    if (!bind_mark()) return 1;
    if (task == "bomb") {
        std::puts("up");
        std::fflush(stdout);
        explode();
    }
    kWays.at(static_cast<std::size_t>(std::atoi(std::getenv("LOCAL_RANK"))))();
    std::puts("up");
    std::fflush(stdout);
    wait_for_ever();
}
