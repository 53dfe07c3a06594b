#include "launcher/host_daemon.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <thread>

#include "common/clock.hpp"
#include "common/system/probe_bind.hpp"
#include "common/system/unique_fd.hpp"
#include "launcher/host/this_host.hpp"
#include "launcher/meeting/reach.hpp"

namespace ddprun::launcher {
namespace {

constexpr std::chrono::milliseconds kLookAgain{20};
constexpr std::chrono::seconds kStepAnswerLimit{3};  // of a daemon, which answers at once unless it is stopped
/// A daemon starts within a few milliseconds; longer waits for one are reported.
constexpr std::chrono::milliseconds kSilentWait{500};

/// Returns the endpoint that an agent on this machine connects to.
Endpoint for_local_agent(const Endpoint& bound) {
    if (!is_wildcard(bound.host)) return bound;  // asking the kernel for all addresses takes a while
    return {address_to_dial(bound.host, this_host()), bound.port};
}

/// StartLock: a lock between processes of one user, held while a port is probed and perhaps taken, so that only one of
/// two ddprun that start at the same time starts a daemon. It is a name in the abstract socket space: like the port it
/// belongs to the network namespace, and it is released when the process ends. Any user can take such a name, so the
/// lock of another user does not count: both start a daemon then, and one of these fails to bind.
class StartLock {
public:
    explicit StartLock(const Endpoint& endpoint) : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        name_.sun_family = AF_UNIX;
        const std::string text = fmt::format("ddprun-start-{}", to_string(endpoint));
        const std::size_t length = std::min(text.size(), sizeof name_.sun_path - 1);
        text.copy(name_.sun_path + 1, length);  // after a zero byte: not a file
        size_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
        held_ = ::bind(socket_.get(), address(), size_) == 0 && ::listen(socket_.get(), SOMAXCONN) == 0;
    }
    [[nodiscard]] bool held() const { return held_; }

    /// Waits until the holder releases the lock, or until `deadline`. Returns false at once if that is another user's
    /// process, or none.
    [[nodiscard]] bool wait_for_holder(TimePoint deadline) const {
        const UniqueFd waiting(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        ucred holder{};
        socklen_t holder_size = sizeof holder;
        if (::connect(waiting.get(), address(), size_) != 0 ||
            ::getsockopt(waiting.get(), SOL_SOCKET, SO_PEERCRED, &holder, &holder_size) != 0)
            return false;
        if (holder.uid != ::getuid() && holder.uid != 0) return false;
        if (closes(waiting, std::min(deadline, Clock::now() + kSilentWait))) return true;
        spdlog::info("waiting for another ddprun (pid {}), which is starting the rendezvous at the same port",
                     holder.pid);
        closes(waiting, deadline);
        return true;
    }

private:
    /// Returns whether the other end is closed before `deadline`.
    static bool closes(const UniqueFd& socket, TimePoint deadline) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
        pollfd closed{socket.get(), POLLIN, 0};  // nothing is ever written, so readable means end-of-file
        return left.count() > 0 && ::poll(&closed, 1, static_cast<int>(left.count())) == 1;
    }
    [[nodiscard]] const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&name_); }

    UniqueFd socket_;
    sockaddr_un name_{};
    socklen_t size_ = 0;
    bool held_ = false;
};

Hosted hosted_here(RunningDaemon daemon) {
    return {for_local_agent(daemon.endpoint), true, std::move(daemon.lifeline), daemon.pid};
}

/// Returns the options that name the port.
const char* port_options(const DaemonRequest& request) {
    return request.at_meeting_point ? "--master-port" : "--rdzv-endpoint or --master-port";
}

Error held_by(const DaemonRequest& request, const PortHolder& holder) {
    const std::string what = fmt::format("cannot host the rendezvous at {}: the port is held by {}",
                                         to_string(request.bind), to_string(holder));
    if (holder.uid == ::geteuid()) {
        return {Errc::kInUse, fmt::format("{}. End that process, or pass another {}.", what, port_options(request))};
    }
    return {Errc::kInUse, fmt::format("{}, and ddprun joins only daemons of its own user ({}). Pass another {}.", what,
                                      ::geteuid(), port_options(request))};
}

Error cannot_bind(const DaemonRequest& request, int error) {
    const std::string where = to_string(request.bind);
    if (error == EACCES) {
        return {Errc::kRefused, fmt::format("cannot host the rendezvous at {}: {}. Ports below 1024 need a privilege: "
                                            "pass another one with {}.",
                                            where, std::strerror(error), port_options(request))};
    }
    return {Errc::kSystem,
            fmt::format("cannot host the rendezvous at {}: {}. Check {}.", where, std::strerror(error),
                        request.at_meeting_point ? "--local-addr" : "--rdzv-endpoint, --master-addr and is_host")};
}

/// Returns whether a daemon of this user serves the job step at `bind`, and its job goes on.
bool serves_step(const Endpoint& bind, const std::string& step) {
    const auto holder = find_port_holder(bind);
    if (!holder || !is_joinable(*holder)) return false;
    const StepAnswer answer = ask_step(for_local_agent(bind), Clock::now() + kStepAnswerLimit);
    return answer.step == step && !answer.is_ending;
}

/// Starts the standby of a daemon that was joined at the address of `request`. Without it the job must be started again
/// if that one ends, so a failure is only logged.
UniqueFd standby_for(const DaemonRequest& request) {
    auto standby = start_standby(request);
    if (standby) return std::move(*standby);
    spdlog::debug("no rendezvous daemon stands by at {}: {}", to_string(request.bind), standby.error().message);
    return {};
}

}  // namespace

bool is_joinable(const PortHolder& holder) {
    return holder.uid == ::geteuid() && (!holder.pid || holder.program == "ddprund");
}

Result<Hosted> host_or_join(const DaemonRequest& request) {
    const Endpoint& bind = request.bind;
    const TimePoint give_up = Clock::now() + request.ready_within;
    for (;; std::this_thread::sleep_for(kLookAgain)) {
        const bool last_look = Clock::now() >= give_up;
        const StartLock lock(bind);
        if (!lock.held() && !last_look && lock.wait_for_holder(give_up)) continue;  // it is starting one now

        const int error = probe_bind(bind);
        if (error == 0) {
            auto daemon = start_daemon(request);
            if (daemon) return hosted_here(std::move(*daemon));
            if (last_look || probe_bind(bind) != EADDRINUSE) return daemon.error();
        } else if (error != EADDRINUSE) {
            return cannot_bind(request, error);
        } else if (const auto holder = find_port_holder(bind)) {
            if (!is_joinable(*holder)) return held_by(request, *holder);
            // The daemon of an earlier job may be about to end, so the port is probed once more.
            if (probe_bind(bind) == EADDRINUSE) return Hosted{for_local_agent(bind), false};
        } else if (last_look) {
            return Error{Errc::kInUse,
                         fmt::format("cannot host the rendezvous at {}: the port is in use, perhaps by an outgoing "
                                     "connection; no process listens there. Start the job again in a minute, or "
                                     "pass another {}.",
                                     to_string(bind), port_options(request))};
        }
    }
}

Result<Hosted> host_or_join_step(DaemonRequest request, const std::vector<std::uint16_t>& ports) {
    for (const std::uint16_t port : ports) {  // before one that is free: this ddprun may come back to a job that runs
        request.bind.port = port;
        if (probe_bind(request.bind) == EADDRINUSE && serves_step(request.bind, request.step))
            return Hosted{for_local_agent(request.bind), false};
    }
    const TimePoint give_up = Clock::now() + request.ready_within;
    for (const std::uint16_t port : ports) {
        request.bind.port = port;
        std::optional<StartLock> lock(std::in_place, request.bind);
        while (!lock->held() && lock->wait_for_holder(give_up) && Clock::now() < give_up) lock.emplace(request.bind);
        const int error = probe_bind(request.bind);
        if (error != 0 && error != EADDRINUSE) return cannot_bind(request, error);
        if (error == 0) {
            auto daemon = start_daemon(request);
            if (daemon) return hosted_here(std::move(*daemon));
            if (probe_bind(request.bind) != EADDRINUSE) return daemon.error();
        }
        if (serves_step(request.bind, request.step)) return Hosted{for_local_agent(request.bind), false};
    }
    return Error{
        Errc::kInUse,
        fmt::format("cannot host the rendezvous of {} at {}: its ports {} are all in use. Pass --rdzv-endpoint "
                    "{}:PORT with a free one to all nodes.",
                    request.step, request.bind.host, fmt::join(ports, ", "), host_name())};
}

Result<DaemonOfJob> DaemonOfJob::begin(const DaemonRequest& request) {
    if (request.bind.port != 0) {
        auto hosted = host_or_join(request);
        if (hosted && !hosted->started_here) hosted->standby = standby_for(request);
        return hosted ? Result<DaemonOfJob>(DaemonOfJob(std::move(*hosted))) : hosted.error();
    }
    if (const int error = probe_bind(request.bind); error != 0) return cannot_bind(request, error);
    auto starting = StartingDaemon::start(request);
    return starting ? Result<DaemonOfJob>(DaemonOfJob(std::move(*starting))) : starting.error();
}

Result<Hosted> DaemonOfJob::wait() {
    if (auto* const hosted = std::get_if<Hosted>(&daemon_)) return std::move(*hosted);
    auto daemon = std::get<StartingDaemon>(daemon_).wait();
    return daemon ? Result<Hosted>(hosted_here(std::move(*daemon))) : daemon.error();
}

}  // namespace ddprun::launcher
