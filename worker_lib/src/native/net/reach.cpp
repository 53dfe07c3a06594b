#include "worker_lib/src/native/net/reach.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "worker_lib/src/native/net/sockets.hpp"
#include "worker_lib/src/native/protocol/deadlines.hpp"

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

bool may_come_back(const ddprun::Error& error) { return error.code == ddprun::Errc::kTimeout || is_unreachable(error); }

}  // namespace

Result<UniqueFd> connect_when_reachable(const std::string& address, int port, TimePoint deadline,
                                        const std::function<void(bool)>& note) {
    const TimePoint noticed_at = Clock::now() + kUnreachableNoticed;
    const TimePoint until = std::min<TimePoint>(deadline, Clock::now() + kUnreachableTolerated);  // for errors
    bool noted = false;
    for (;;) {
        const TimePoint next = noted ? Clock::now() + kAttempt : noticed_at;
        auto connected = connect_tcp(address, port, std::min(next, deadline));
        if (connected && noted) note(false);
        if (connected || !may_come_back(connected.error())) return connected;
        if (!noted && Clock::now() >= noticed_at) note(noted = true);
        const bool no_answer = connected.error().code == ddprun::Errc::kTimeout;
        if (Clock::now() + kPause >= (no_answer ? deadline : until)) return connected;
        if (!no_answer) std::this_thread::sleep_for(kPause);
    }
}

}  // namespace ddp::detail
