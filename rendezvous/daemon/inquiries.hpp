#pragma once
// Inquiries: asks the agents for the boards of their workers, when one of them reports a stall or a ddpctl wants to see
// them, and says what they add up to. Pure: no socket, no clock; the daemon performs the actions.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "common/clock.hpp"
#include "rendezvous/coordinator/stall.hpp"
#include "rendezvous/coordinator/state.hpp"

namespace ddprun::daemon {

/// Who asks, of the connections that are no agents'.
enum class InspectorId : std::uint64_t {};

struct ToAgent {
    coordinator::NodeId node;
    coordinator::DaemonMessage message;
    friend bool operator==(const ToAgent&, const ToAgent&) = default;
};
struct ToInspector {
    InspectorId inspector{};
    coordinator::DaemonMessage message;
    friend bool operator==(const ToInspector&, const ToInspector&) = default;
};
/// The verdict on a stall, for the log; every agent is told as well.
struct Conclusion {
    std::string text;
    friend bool operator==(const Conclusion&, const Conclusion&) = default;
};
using InquiryAction = std::variant<ToAgent, ToInspector, Conclusion>;
using InquiryActions = std::vector<InquiryAction>;

class Inquiries {
public:
    /// For so long an answer is waited for.
    static constexpr std::chrono::seconds kPatience{3};
    /// For ddpctl, who has been in an operation for less is not called stuck.
    static constexpr std::chrono::seconds kStuckAfter{5};

    InquiryActions stalled(const coordinator::State& state, const coordinator::NodeId& from,
                           const coordinator::Stalled& report, TimePoint now);
    /// An inspector asks for one thing at a time; a second one replaces the first.
    InquiryActions inspect(const coordinator::State& state, InspectorId inspector, const coordinator::Inspect& wish,
                           TimePoint now);
    InquiryActions shown(const coordinator::State& state, const coordinator::NodeId& from,
                         coordinator::ShownBoard board);
    /// Ends what has waited too long, and does not wait for nodes that are gone.
    InquiryActions tick(const coordinator::State& state, TimePoint now);
    void forget(InspectorId inspector);

private:
    struct Inquiry {
        Generation generation{};
        std::optional<InspectorId> inspector;  ///< empty: a stall
        std::chrono::nanoseconds patience{0};
        TimePoint deadline;
        std::set<coordinator::NodeId> missing;
        std::vector<coordinator::RankBoard> boards;
        bool whole = true;  ///< of all ranks
    };

    InquiryActions ask(const coordinator::State& state, Inquiry inquiry, std::optional<Rank> rank, int operations);
    void conclude(const coordinator::State& state, const Inquiry& inquiry, InquiryActions& actions);

    std::map<std::uint64_t, Inquiry> open_;  ///< by request number
    std::uint64_t last_request_ = 0;
    Generation generation_{-1};  ///< of `told_`
    /// Operations whose stall was asked about: group, seq, p2p_seq.
    std::set<std::tuple<std::string, std::uint64_t, std::uint64_t>> told_;
    /// Verdicts that were given: ranks that are stuck in different operations may wait for the same.
    std::set<std::tuple<coordinator::StallKind, std::string, std::uint64_t>> concluded_;
};

}  // namespace ddprun::daemon
