#include "tests/unit/agent/workers/processes.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <thread>

#include "common/ids.hpp"

namespace agent_test {
namespace {

using std::chrono::steady_clock;
constexpr std::chrono::seconds kTimeout{20};

std::string contents(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

/// Reads until `enough`, end-of-file or the timeout.
std::string read_until(int fd, const std::function<bool(const std::string&)>& enough) {
    std::string text;
    const auto deadline = steady_clock::now() + kTimeout;
    while (!enough(text)) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - steady_clock::now());
        pollfd readable{fd, POLLIN, 0};
        if (left.count() <= 0 || ::poll(&readable, 1, static_cast<int>(left.count())) <= 0) break;
        char byte = 0;
        if (::read(fd, &byte, 1) <= 0) break;
        text += byte;
    }
    return text;
}

}  // namespace

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds limit) {
    const auto deadline = steady_clock::now() + limit;
    while (!condition()) {
        if (steady_clock::now() > deadline) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
}

Mark::Mark() : value_(ddprun::random_id()) {}

Mark::~Mark() {
    // Repeated: a process that forks may be missed once.
    static_cast<void>(eventually([this] {
        const std::vector<pid_t> left = processes();
        for (const pid_t pid : left) ::kill(pid, SIGKILL);
        return left.empty();
    }));
}

std::vector<pid_t> Mark::processes() const {
    std::vector<pid_t> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
        const std::string name = entry.path().filename().string();
        if (name.find_first_not_of("0123456789") != std::string::npos) continue;
        // A zombie has no environment any more.
        if (contents(entry.path() / "environ").find(assignment()) != std::string::npos)
            found.push_back(std::atoi(name.c_str()));
    }
    return found;
}

bool Mark::none_left() const {
    return eventually([this] { return processes().empty(); });
}

Pipe::Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    read_end.reset(ends[0]);
    write_end.reset(ends[1]);
}

std::string read_line(int fd) {
    std::string line = read_until(fd, [](const std::string& text) { return !text.empty() && text.back() == '\n'; });
    if (!line.empty() && line.back() == '\n') line.pop_back();
    return line;
}

std::string read_all(int fd) {
    return read_until(fd, [](const std::string&) { return false; });
}

pid_t fork_flushed() {
    std::cout.flush();
    std::fflush(nullptr);
    return ::fork();
}

ddprun::ExitStatus wait_for(pid_t child) {
    int status = 0;
    if (eventually([&] { return ::waitpid(child, &status, WNOHANG) == child; }))
        return ddprun::exit_status_from_wait(status);
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
    return {ddprun::ExitStatus::Kind::kSignaled, SIGALRM, false};
}

std::string shapes() { return AGENT_TEST_SHAPES; }

}  // namespace agent_test
