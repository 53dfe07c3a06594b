#pragma once
// Deadlines: the times at which waiting ranks give up. They form chains: one waits for its neighbour, which waits for a
// counterpart on another node, which waits for a neighbour of its own that does nothing. Only the last one sees the
// culprit, so it must give up and report first. The others wait a little longer.
//
// Neighbours see each other's memory: a rank that waits for messages increments a word there, and is not a culprit. So
// a rank gives up on a silent neighbour at the deadline. It gives up on messages kReporting later, because the senders
// may be about to report why, and last on neighbours that all wait for messages themselves.

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/clock.hpp"

namespace ddp::detail {

/// Time for a report of the culprit to get from node to node.
inline constexpr std::chrono::milliseconds kReporting{750};
/// Between nodes, a rank that sees the culprit gives up this much earlier than one that only suspects a peer.
inline constexpr std::chrono::milliseconds kDoubt{150};
/// Limit for the final report to and from a peer after a failure.
inline constexpr std::chrono::milliseconds kFinalReportTimeout{250};
/// A rank that waits for messages signals that at least ten times in this time, unless it is stopped. Longer than a
/// rank that is ready to run has to wait for a core on a busy machine.
inline constexpr std::chrono::milliseconds kSilence{500};

/// Pauses: finds the pauses of a waiting rank, in which it did not run itself, as on a suspended machine, from its
/// looks at others, which it takes much more often than every kSilence / 2. A pause shows nothing about the others,
/// because they may not have run either.
class Pauses {
public:
    /// Begins a wait.
    void begin(ddprun::TimePoint now) { looked_ = now; }
    /// Looks again. Returns the time since the last look or begin() in which the rank did not run.
    ddprun::Duration look(ddprun::TimePoint now) {
        const auto missed = now - std::exchange(looked_, now) - kSilence / 2;
        if (missed <= ddprun::Duration::zero()) return ddprun::Duration::zero();
        if (now - episode_ > kEpisode) {
            episode_ = now;
            count_ = 0;
        }
        if (++count_ <= kMaxPauses) ended_ = now;
        return missed;
    }
    /// Returns `limit`, or `needed` after the end of the last pause if that is later: reports that arrived during the
    /// pause are to be read first. On a machine that is always short of cores not every pause counts, so that the limit
    /// is reached in the end.
    [[nodiscard]] ddprun::TimePoint limit_after(ddprun::TimePoint limit, ddprun::Duration needed = {}) const {
        return std::max(limit, ended_ + needed);
    }

private:
    static constexpr int kMaxPauses = 20;
    static constexpr std::chrono::seconds kEpisode{60};

    ddprun::TimePoint looked_;
    ddprun::TimePoint ended_;    ///< of the last pause that counts
    ddprun::TimePoint episode_;  ///< begin of the time in which kMaxPauses count
    int count_ = 0;              ///< pauses in it
};

[[nodiscard]] inline ddprun::TimePoint extended(ddprun::TimePoint deadline, ddprun::Duration by) {
    return deadline < ddprun::TimePoint::max() - by ? deadline + by : ddprun::TimePoint::max();
}

/// Returns when a rank gives up waiting for messages from other nodes.
[[nodiscard]] inline ddprun::TimePoint network_deadline(ddprun::TimePoint deadline) {
    return extended(deadline, kReporting);
}
/// Returns when a rank gives up although messages from other nodes still arrive. Later than network_deadline(), because
/// one of them may carry the reason.
[[nodiscard]] inline ddprun::TimePoint last_network_deadline(ddprun::TimePoint deadline) {
    return extended(deadline, 2 * kReporting);
}
/// Returns when a rank gives up waiting for ranks of its node that wait for messages: these give up first, in any case.
[[nodiscard]] inline ddprun::TimePoint finishing_deadline(ddprun::TimePoint deadline) {
    return extended(deadline, 4 * kReporting);
}

}  // namespace ddp::detail
