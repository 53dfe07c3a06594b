#pragma once
// StallDetector: detects from flight records that a worker is in one operation for too long, and remembers which stalls
// were already reported to the daemon. Owned by RecorderService. Pure.

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "common/ids.hpp"
#include "rendezvous/protocol/inspection.hpp"

namespace ddprun::agent {

class StallDetector {
public:
    /// `warning`: how long an operation may take; 0: any time.
    explicit StallDetector(std::chrono::nanoseconds warning) : warning_(warning) {}

    [[nodiscard]] bool is_on() const { return warning_.count() > 0; }
    /// Returns the interval at which to call look().
    [[nodiscard]] std::chrono::nanoseconds interval() const;

    /// Returns a report about the operation that a worker has waited for longest, if that is too long and not reported
    /// yet. An operation that has just failed by its deadline is reported whatever `warning` is, and so is one in
    /// progress whose entry shows another rank whose host does not answer. The caller fills in `generation`.
    [[nodiscard]] std::optional<protocol::Stalled> look(Rank rank, const protocol::FlightRecord& view) const;
    /// Notes that the daemon has a report about `rank`. It covers every stuck operation in `view`, because the daemon
    /// will request the whole record.
    void set_reported(Rank rank, const protocol::FlightRecord& view);
    /// Forgets every report: another worker group begins.
    void reset() { reported_.clear(); }

private:
    /// Returns how long the worker has waited for `operation`; empty: not too long.
    [[nodiscard]] std::optional<std::chrono::nanoseconds> stuck_for(const protocol::RecordedOperation& operation,
                                                                    bool going_on) const;

    [[nodiscard]] static std::optional<std::chrono::nanoseconds> cut_off_for(
        const protocol::RecordedOperation& operation, bool going_on);

    /// An operation by its number in the flight record, and whether the report is the one about an unreachable host.
    using Reported = std::pair<std::uint64_t, bool>;

    const std::chrono::nanoseconds warning_;
    std::map<Rank, std::set<Reported>> reported_;
};

}  // namespace ddprun::agent
