#include "launcher/daemon_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/json/parse.hpp>
#include <boost/json/value_to.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <limits>

#include "common/clock.hpp"
#include "common/exit_codes.hpp"
#include "common/system/process.hpp"
#include "common/system/shared_memory_child.hpp"
#include "common/text/number.hpp"

namespace ddprun::launcher {
namespace {

// The daemon's descriptors besides stdin, stdout and stderr.
constexpr int kReadyFd = 3;
constexpr int kLifelineFd = 4;  // closes when the daemon, or its starter, ends; the starter may write to the daemon

/// The daemon to execute, and the stacks of the two processes that share our memory until then.
struct Detached {
    const char* program;
    char* const* argv;
    int ready;
    int lifeline;
    ChildStack middle_stack;
    ChildStack daemon_stack;
};

/// Executes the daemon in the grandchild. Returns, which ends the grandchild, only if that failed.
DDPRUN_RUNS_IN_CHILD int become_daemon(void* argument) {
    const auto& detached = *static_cast<const Detached*>(argument);
    // Both are copied to high numbers first, because each may have the number that the other one needs.
    const int ready_copy = ::fcntl(detached.ready, F_DUPFD, 10);
    const int lifeline_copy = ::fcntl(detached.lifeline, F_DUPFD, 10);
    const int null = ::open("/dev/null", O_RDWR);
    if (null < 0) {
        constexpr std::string_view kText = "ddprund: cannot open /dev/null, which it needs: mount a /dev that has it\n";
        [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, kText.data(), kText.size());
    }
    if (ready_copy < 0 || lifeline_copy < 0 || null < 0) return exit_code::kProgramNotFound;
    ::dup2(null, STDIN_FILENO);
    ::dup2(null, STDOUT_FILENO);  // it prints nothing there, and the reader of our output may wait for end-of-file
    ::dup2(ready_copy, kReadyFd);
    ::dup2(lifeline_copy, kLifelineFd);
    // A descriptor that our caller left open must not stay open in the daemon: its reader may wait for end-of-file.
    ::close_range(kLifelineFd + 1, std::numeric_limits<unsigned>::max(), 0);
    ::execv(detached.program, detached.argv);
    return exit_code::kProgramNotFound;
}

/// Starts the daemon in a session of its own.
DDPRUN_RUNS_IN_CHILD int leave_session(void* argument) {
    ::setsid();
    return clone_sharing_memory(become_daemon, argument, static_cast<Detached*>(argument)->daemon_stack) < 0 ? 1 : 0;
}

/// Lets a process between this one and the daemon end at once, so that the daemon is no child of this process. Both
/// share our memory (docs/design/020): ddprun has no handler of signals yet that could run in them.
Result<void> spawn_detached(const std::string& program, std::vector<std::string> arguments, const UniqueFd& ready,
                            const UniqueFd& lifeline) {
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);

    Detached detached{program.c_str(), argv.data(), ready.get(), lifeline.get(), {}, {}};
    const pid_t middle = clone_sharing_memory(leave_session, &detached, detached.middle_stack);
    if (middle < 0) return system_error("cannot fork ddprund", errno);
    int status = 0;
    while (::waitpid(middle, &status, 0) < 0 && errno == EINTR) {
    }
    if (status != 0) return Error{Errc::kSystem, "cannot fork ddprund: the limit of processes is reached"};
    return {};
}

/// Reads the one line that the daemon writes to `fd`, without its line end. Errors: kTimeout, kClosed, kLimit.
Result<std::string> read_line(int fd, TimePoint deadline) {
    std::array<char, 4096> buffer;
    for (std::size_t size = 0; size < buffer.size();) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
        pollfd readable{fd, POLLIN, 0};
        const int ready = left.count() > 0 ? ::poll(&readable, 1, static_cast<int>(left.count())) : 0;
        if (ready < 0 && errno == EINTR) continue;
        if (ready == 0) return Error{Errc::kTimeout, "no ready line"};
        const ssize_t got = ::read(fd, buffer.data() + size, buffer.size() - size);
        if (got == 0) return Error{Errc::kClosed, "end of file"};
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return system_error("reading the ready line", errno);
        size += static_cast<std::size_t>(got);
        const std::string_view text(buffer.data(), size);
        if (const auto end = text.find('\n'); end != std::string_view::npos) return std::string(text.substr(0, end));
    }
    return Error{Errc::kLimit, "the ready line is too long"};
}

constexpr std::chrono::seconds kDefaultHold{30};  // of ddprund

}  // namespace

std::vector<std::string> daemon_arguments(const DaemonRequest& request, int ready_fd, int starter_fd) {
    std::vector<std::string> arguments{"ddprund"};
    const auto add = [&](const char* option, std::string value) {
        arguments.insert(arguments.end(), {option, std::move(value)});
    };
    add("--bind", request.bind.host);
    add("--port", std::to_string(request.bind.port));
    add("--starter-fd", std::to_string(starter_fd));
    add("--linger", seconds_number(request.linger));
    if (!request.verbose) arguments.push_back("--quiet");
    if (request.store_address) add("--store-address", *request.store_address);
    if (request.run_id) arguments.push_back("--run-id=" + *request.run_id);  // it may begin with a dash
    if (!request.step.empty()) add("--step", request.step);
    if (!request.hosts.empty()) add("--hosts", fmt::format("{}", fmt::join(request.hosts, ",")));
    if (request.join_timeout) add("--join-timeout", seconds_number(*request.join_timeout));
    if (request.last_call) add("--last-call", seconds_number(*request.last_call));
    if (request.lost_after) {
        add("--lost-after", seconds_number(*request.lost_after));
        add("--heartbeat-interval", seconds_number(*request.lost_after / 6));
        add("--hold", seconds_number(std::max<std::chrono::milliseconds>(kDefaultHold, 2 * *request.lost_after)));
    }
    if (request.insecure) arguments.push_back("--insecure");
    if (request.store_vouch) arguments.push_back("--store-vouch");
    if (request.standby)
        arguments.push_back("--standby");
    else
        add("--ready-fd", std::to_string(ready_fd));
    return arguments;
}

Result<RunningDaemon> parse_ready_line(std::string_view line) {
    const Error malformed{Errc::kMalformed, fmt::format("ddprund's ready line is malformed: {}", line)};
    boost::json::error_code ec;
    const boost::json::value value = boost::json::parse(line, ec);
    const boost::json::object* object = ec ? nullptr : value.if_object();
    if (object == nullptr) return malformed;
    const auto text = [&](const char* key) {
        const boost::json::value* member = object->if_contains(key);
        return member != nullptr && member->is_string() ? std::string(member->get_string()) : "";
    };
    const boost::json::value* port = object->if_contains("port");
    const bool port_valid = port != nullptr && port->is_int64() && port->get_int64() > 0 && port->get_int64() <= 65535;
    const boost::json::value* pid = object->if_contains("pid");
    RunningDaemon daemon{{text("address"), 0}, text("run_id"), {}, 0};
    if (!port_valid || daemon.endpoint.host.empty()) return malformed;
    daemon.endpoint.port = static_cast<std::uint16_t>(port->get_int64());
    if (pid != nullptr && pid->is_int64()) daemon.pid = static_cast<pid_t>(pid->get_int64());
    return daemon;
}

Result<StartingDaemon> StartingDaemon::start(const DaemonRequest& request) {
    auto ready = make_pipe("to ddprund");
    if (!ready) return ready.error();
    int ends[2] = {-1, -1};
    // It keeps the texts of a starter apart, each of which says why no further node will join.
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return system_error("cannot make a socket to ddprund", errno);
    UniqueFd lifeline(ends[0]);
    const UniqueFd for_daemon(ends[1]);
    const TimePoint deadline = Clock::now() + request.ready_within;
    const Result<void> spawned =
        spawn_detached(request.program, daemon_arguments(request, kReadyFd, kLifelineFd), ready->write_end, for_daemon);
    if (!spawned) return spawned.error();
    return StartingDaemon(request, deadline, std::move(ready->read_end), std::move(lifeline));
}

Result<RunningDaemon> StartingDaemon::wait() {
    const auto line = read_line(ready_.get(), deadline_);
    ready_.reset();
    if (!line && line.error().code == Errc::kClosed) {
        return Error{Errc::kClosed,
                     fmt::format("ddprund ended before it listened at {}. Its own message is above; if there is "
                                 "none, try ddprund --help.",
                                 to_string(request_.bind))};
    }
    if (!line) {
        return with_context(fmt::format("ddprund did not report within {} that it listens at {}",
                                        seconds_text(request_.ready_within), to_string(request_.bind)),
                            line.error());
    }
    auto daemon = parse_ready_line(*line);
    if (daemon) daemon->lifeline = std::move(lifeline_);
    return daemon;
}

Result<RunningDaemon> start_daemon(const DaemonRequest& request) {
    auto starting = StartingDaemon::start(request);
    return starting ? starting->wait() : Result<RunningDaemon>(starting.error());
}

Result<UniqueFd> start_standby(DaemonRequest request) {
    request.standby = true;
    auto starting = StartingDaemon::start(request);
    return starting ? starting->take_lifeline() : Result<UniqueFd>(starting.error());
}

bool daemon_ends_within(const UniqueFd& lifeline, std::chrono::milliseconds limit) {
    pollfd hung_up{lifeline.get(), POLLIN, 0};  // the daemon never writes there, so readable means end-of-file
    return ::poll(&hung_up, 1, static_cast<int>(limit.count())) == 1;
}

void release_daemon(const UniqueFd& lifeline) { ::shutdown(lifeline.get(), SHUT_WR); }

}  // namespace ddprun::launcher
