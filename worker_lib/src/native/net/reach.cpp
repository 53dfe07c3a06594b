#include "worker_lib/src/native/net/reach.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "worker_lib/src/native/net/sockets.hpp"

namespace ddp::detail {

namespace {

using ddprun::Clock;
using ddprun::Result;
using ddprun::TimePoint;
using ddprun::UniqueFd;

/// Limit of one attempt. The kernel repeats its request ever more rarely, so that a new attempt finds sooner that the
/// network is back.
constexpr std::chrono::seconds kAttempt{5};
/// Pause after an attempt that failed at once.
constexpr std::chrono::milliseconds kPause{250};

}  // namespace

Result<UniqueFd> connect_when_reachable(const std::string& address, int port, const ReachLimits& limits,
                                        const std::function<void(bool)>& note) {
    const TimePoint began = Clock::now();
    const TimePoint noticed_at = began + limits.noticed;
    const TimePoint last_answer = std::min(limits.deadline, began + limits.unanswered);
    bool noted = false;
    for (;;) {
        const TimePoint next = noted ? Clock::now() + kAttempt : noticed_at;
        auto connected = connect_tcp(address, port, std::min(next, last_answer));
        if (connected && noted) note(false);
        if (connected) return connected;
        const TimePoint now = Clock::now();
        const bool no_answer = connected.error().code == ddprun::Errc::kTimeout;
        if (!no_answer && !is_unreachable(connected.error())) return connected;
        if (!noted && now >= noticed_at) note(noted = true);
        if (now + kPause >= limits.deadline) return connected;
        if (!no_answer && now + kPause >= began + limits.unreachable) return connected;
        if (now + kPause >= last_answer)
            return ddprun::system_error(fmt::format("cannot connect to {} port {}", address, port), ETIMEDOUT);
        if (!no_answer) std::this_thread::sleep_for(kPause);
    }
}

}  // namespace ddp::detail
