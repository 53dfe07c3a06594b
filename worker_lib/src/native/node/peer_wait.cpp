#include "worker_lib/src/native/node/peer_wait.hpp"

#include <fmt/format.h>

#include <vector>

#include "worker_lib/src/native/protocol/deadlines.hpp"

namespace ddp::detail {

/// Checks, after every sleep of a wait, whether it can still succeed. Throws if a rank is gone or the deadline passed.
void PeerWait::check(const Operation& operation, Silence& silence,
                     const std::function<bool(int index)>& arrived) const {
    progress_.signal_waiting();
    const auto now = ddprun::Clock::now();
    silence.update(ranks_, now, progress_.look(now));
    std::vector<int> absent;
    std::vector<int> silent;  // subset of `absent`
    for (int i = 0; i < ranks_.size(); ++i) {
        const auto absence = progress_.absence(i);
        // Called after absence(): a rank that arrived and then ended does not matter any more.
        if (arrived(i)) continue;
        if (absence) {
            failure_.check_any(operation);  // a rank that leaves because of a failure has reported that before
            throw FailureError(met_in(describe(operation), absence->failure), ranks_.group(), ranks_.self());
        }
        absent.push_back(ranks_.rank_at(i));
        if (silence.of(i)) silent.push_back(ranks_.rank_at(i));
    }
    if (absent.empty() || now < progress_.limit()) return;
    if (silent.empty() && now < progress_.limit(kFinishingExtra)) return;
    const auto& culprits = silent.empty() ? absent : silent;
    const Failure late{.code = ErrorCode::Timeout,
                       .cause = fmt::format("{} waited until its deadline for {} in {}", ranks_.self(),
                                            ranks_.names_of(culprits), describe(operation)),
                       .culprits = culprits};
    throw FailureError(late, ranks_.group(), ranks_.self());
}

/// Signals while it waits that it does, so that no rank takes this one for the culprit.
void PeerWait::await_failure(const Operation& operation) const {
    until_all(operation, [&](int i) {
        progress_.signal_listening();
        return !failure_.gives_up(i, operation);
    });
}

}  // namespace ddp::detail
