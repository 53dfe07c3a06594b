#include "launcher/ssh_node.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "common/exit_codes.hpp"
#include "common/system/exit_status.hpp"
#include "common/system/signals.hpp"
#include "common/system/write_all.hpp"
#include "launcher/cluster_signals.hpp"
#include "launcher/ssh_request.hpp"

namespace ddprun::launcher {
namespace {

int refuse_request(const std::string& why) {
    std::array<char, 256> host{};
    ::gethostname(host.data(), host.size() - 1);
    std::fputs(fmt::format("ddprun: {}: {}.\n", host.data(), why).c_str(), stderr);
    return exit_code::kUsage;
}

/// Executes the ddprun of this host, which ends with this process.
[[noreturn]] void become_ddprun(const SshRequest& request, pid_t parent, const ClusterSignals& signals) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(exit_code::kInfrastructure);  // it died before prctl()
    std::vector<std::string> arguments = request.arguments;
    arguments.insert(arguments.begin(), "ddprun");
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::dup2(null, STDIN_FILENO);
    notice_failed_writes();
    signals.restore_mask();
    ::execv("/proc/self/exe", argv.data());
    ::_exit(exit_code::kInternal);
}

/// Passes on what comes from the other end of ssh. Returns false at its end.
bool pass_on(pid_t child) {
    std::array<unsigned char, 64> numbers{};
    const ssize_t got = ::read(STDIN_FILENO, numbers.data(), numbers.size());
    for (ssize_t i = 0; i < got; ++i) ::kill(child, numbers[static_cast<std::size_t>(i)]);
    return got > 0 || (got < 0 && errno == EINTR);
}

ExitStatus wait_for(pid_t child, ClusterSignals& signals) {
    std::array<pollfd, 2> sources{pollfd{signals.fd(), POLLIN, 0}, pollfd{STDIN_FILENO, POLLIN, 0}};
    for (;;) {
        int status = 0;
        if (::waitpid(child, &status, WNOHANG) == child) return exit_status_from_wait(status);
        ::poll(sources.data(), sources.size(), -1);
        if (sources[1].revents != 0 && !pass_on(child)) {
            sources[1].fd = -1;  // the connection has ended
            ::kill(child, SIGTERM);
        }
        while (const auto signal = signals.next())
            if (*signal != SIGCHLD) ::kill(child, *signal);
    }
}

}  // namespace

int run_ssh_node() {
    ignore_failed_writes();
    const auto request = read_ssh_request(STDIN_FILENO);
    if (!request) return refuse_request(request.error().message);
    for (const auto& [name, value] : request->environment) ::setenv(name.c_str(), value.c_str(), 1);
    if (::chdir(request->directory.c_str()) != 0) {
        return refuse_request(
            fmt::format("cannot enter {}, in which ddprun --hosts was started: {}. Start it in a "
                        "directory that all hosts have",
                        request->directory, std::strerror(errno)));
    }
    ClusterSignals signals;
    (void)write_all(STDOUT_FILENO, kStartedMark);
    const pid_t self = ::getpid();
    const pid_t child = ::fork();
    if (child < 0) return refuse_request(fmt::format("cannot start ddprun: {}", std::strerror(errno)));
    if (child == 0) become_ddprun(*request, self, signals);
    const int code = wait_for(child, signals).exit_code();
    (void)write_all(STDOUT_FILENO, fmt::format("{}{}\n", kEndedMark, code));
    return code;
}

}  // namespace ddprun::launcher
