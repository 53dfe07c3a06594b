#pragma once
// InquiryState: what the inquiries know. Plain values in ordered containers, one part per subject. Owned by the
// daemon's one loop, changed by step() alone (inquiries.hpp).

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/clock.hpp"
#include "rendezvous/diagnosis/stall.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::diagnosis {

/// A connection of ddpctl.
enum class InspectorId : std::uint64_t {};

/// Agents that have not answered a request after this time are left out of the diagnosis.
inline constexpr std::chrono::seconds kAnswerTimeout{3};
/// The same after a worker's failure. It is shorter, because the end of the group waits for the diagnosis.
inline constexpr std::chrono::seconds kFailureTimeout{1};

/// The subject of an inquiry; each has a file of rules.
enum class Subject {
    kStall,      ///< an operation takes too long: stalls.hpp
    kFailure,    ///< a worker has failed, by a deadline or by its end: failures.hpp
    kLastRanks,  ///< the ranks that are left when others have ended well: last_ranks.hpp
    kOverdue,    ///< the deadline of a preemption has passed: overdue.hpp
    kInspector,  ///< an inspector asks: inspections.hpp
};

/// One request for flight records, from the question to the diagnosis.
struct Inquiry {
    Subject subject = Subject::kStall;
    Generation generation{};
    TimePoint deadline;
    int world_size = 0;
    std::set<NodeId> missing = {};               ///< nodes that have not answered yet
    std::vector<RankRecord> records = {};        ///< only if all ranks were asked for
    std::optional<Rank> rank = {};               ///< the one rank that was asked for; empty: all
    std::optional<std::set<NodeId>> nodes = {};  ///< those that are asked; empty: all
    InspectorId inspector{};                     ///< kInspector
    std::chrono::nanoseconds min_wait{0};        ///< kStall: a shorter wait is not a stall
    std::chrono::nanoseconds recent{0};          ///< kFailure: time since the previous such inquiry
};

/// Identifies one stall: the numbers of the collective, or of the send or receive with the rank that is in it.
using Occasion = std::tuple<std::uint64_t, std::uint64_t, int>;

/// Stalls of one generation (stalls.cpp).
struct StallReports {
    /// A stall whose inquiry was postponed.
    struct Reminder {
        std::chrono::nanoseconds min_wait{0};
        TimePoint when;
    };
    /// A verdict that was reported.
    struct Reported {
        Occasion occasion;
        std::chrono::nanoseconds quiet{0};
        TimePoint until;                  ///< a verdict on the same ranks is not repeated before
        std::vector<CutLink> links = {};  ///< of all verdicts on them
    };
    using Accused = std::tuple<StallKind, std::string, std::vector<int>>;  ///< kind, group, ranks

    std::optional<Reminder> reminder = {};
    TimePoint next_inquiry{};  ///< the earliest time for it
    std::chrono::nanoseconds interval{0};
    std::map<Accused, Reported> reported = {};
    /// Cut links that the newest inquiry has shown, or an earlier one, if agents of their nodes have not answered
    /// since. An inquiry that ends after the time does not confirm them.
    std::map<CutLink, TimePoint> suspects = {};
    bool confirming = false;  ///< the next inquiry is to confirm them, after kConfirmPause
};

/// Failures of one generation (failures.cpp).
struct FailureReports {
    bool timeout_pending = false;   ///< an operation failed by its deadline, and no inquiry has looked at it yet
    TimePoint timeouts_asked_at{};  ///< the newest inquiry about operations that failed by their deadline
    std::map<std::pair<std::string, Occasion>, TimePoint> reported_timeouts = {};  ///< by group; when last seen
    std::optional<Rank> failed = {};  ///< the worker that was asked about last
};

/// The ranks of one generation that are left when others have ended well (last_ranks.cpp).
struct LastRanks {
    TimePoint asked_at{};
    std::chrono::nanoseconds interval{0};  ///< the pause until they are asked again
    std::optional<TimePoint> newest_end = {};
    std::optional<std::chrono::nanoseconds> reported_for = {};  ///< it was reported, and is not repeated for this time
};

struct InquiryState {
    std::map<std::uint64_t, Inquiry> open = {};  ///< by request number
    std::uint64_t last_request = 0;
    Generation generation{-1};  ///< the worker group of what follows
    StallReports stalls = {};
    FailureReports failures = {};
    LastRanks last_ranks = {};
    bool overdue_asked = false;  ///< why the ranks have not ended at the deadline of a preemption (overdue.cpp)
};

}  // namespace ddprun::diagnosis
