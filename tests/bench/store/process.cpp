#include "tests/bench/store/process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "tests/bench/store/clock.hpp"

namespace ddprun::bench {

using namespace std::chrono_literals;

namespace {

[[noreturn]] void become(const std::vector<std::string>& arguments, int cpu, int output, pid_t parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    if (cpu >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(cpu, &set);
        ::sched_setaffinity(0, sizeof(set), &set);
    }
    // PyTorch 2.15's server asks the DNS for the name of each client, and serves nobody until it knows.
    ::setenv("RES_OPTIONS", "timeout:1 attempts:1", 1);
    const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    ::dup2(null, 0);
    ::dup2(output, 1);
    ::dup2(null, 2);
    std::vector<char*> argv;
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
}

}  // namespace

Process::Process(const std::vector<std::string>& arguments, int cpu) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error(fmt::format("pipe: {}", std::strerror(errno)));
    output_.reset(ends[0]);
    const UniqueFd write_end(ends[1]);
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error(fmt::format("cannot start {}: {}", arguments[0], std::strerror(errno)));
    if (pid_ == 0) become(arguments, cpu, write_end.get(), parent);
}

Process::~Process() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGTERM);
    for (int tries = 0; tries < 200; ++tries) {
        if (::waitpid(pid_, nullptr, WNOHANG) != 0) return;
        std::this_thread::sleep_for(10ms);
    }
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
}

std::string Process::first_line(std::chrono::milliseconds timeout) {
    const std::uint64_t deadline = now_ns() + std::uint64_t(timeout.count()) * 1'000'000;
    std::string line;
    for (char c = 0; now_ns() < deadline;) {
        pollfd readable{.fd = output_.get(), .events = POLLIN, .revents = 0};
        if (::poll(&readable, 1, 100) <= 0) continue;
        if (::read(output_.get(), &c, 1) != 1) return {};
        if (c == '\n') return line;
        line += c;
    }
    return {};
}

bool Process::running() {
    if (pid_ >= 0 && ::waitpid(pid_, nullptr, WNOHANG) != 0) pid_ = -1;
    return pid_ >= 0;
}

std::uint64_t Process::cpu_ns() const {
    clockid_t clock = 0;
    timespec t{};
    if (::clock_getcpuclockid(pid_, &clock) != 0 || ::clock_gettime(clock, &t) != 0) {
        throw std::runtime_error("a server has ended on its own");
    }
    return std::uint64_t(t.tv_sec) * 1'000'000'000 + std::uint64_t(t.tv_nsec);
}

std::uint64_t Process::resident_bytes() const {
    // smaps_rollup counts; statm may be off by some dozen pages for each thread.
    std::ifstream file(fmt::format("/proc/{}/smaps_rollup", pid_));
    for (std::string word; file >> word;) {
        std::uint64_t kib = 0;
        if (word == "Rss:" && file >> kib) return kib * 1024;
    }
    throw std::runtime_error(fmt::format("cannot read the memory of process {}", pid_));
}

void Process::wait_until_quiet() const {
    constexpr std::uint64_t kQuietNs = 300'000;  // redis' and our own timers take less in one interval
    std::uint64_t before = cpu_ns();
    for (int quiet = 0; quiet < 3;) {
        std::this_thread::sleep_for(10ms);
        const std::uint64_t after = cpu_ns();
        quiet = after - before < kQuietNs ? quiet + 1 : 0;
        before = after;
    }
}

}  // namespace ddprun::bench
