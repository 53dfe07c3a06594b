#pragma once
// InquiryTransition: the step in progress, and the helpers that the rules of all subjects share. Private to the
// inquiries: other code calls step().

#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/coordinator/state.hpp"
#include "rendezvous/diagnosis/inquiry/inquiries.hpp"

namespace ddprun::diagnosis {

/// A rule changes the state, appends actions in the order in which they must happen, and explains itself in the reason.
struct InquiryTransition {
    const coordinator::State& job;
    InquiryState state;
    TimePoint now;
    InquiryActions actions{};
    std::string reason{};

    void send(const NodeId& node, DaemonMessage message) { actions.push_back(ToAgent{node, std::move(message)}); }
    /// Adds a clause to the reason.
    void say(std::string_view clause) { reason.append(reason.empty() ? "" : "; ").append(clause); }
};

/// Returns whether worker processes may exist: only these phases have flight records.
[[nodiscard]] bool workers_run(const coordinator::State& job);
/// Returns whether the node is connected and its agent knows the messages about flight records.
[[nodiscard]] bool answers(const coordinator::State& job, const NodeId& id);
/// Returns whether `rank` is one of that member's workers.
[[nodiscard]] bool has_rank(const coordinator::State& job, const NodeId& id, const coordinator::Member& member,
                            Rank rank);
/// Returns the records that have arrived and, for every other rank that was asked for, an empty record with its host.
[[nodiscard]] std::vector<RankRecord> records_of_all(const coordinator::State& job, const Inquiry& inquiry);
/// Returns the identity of the stall that `verdict` is about.
[[nodiscard]] Occasion occasion_of(const StallVerdict& verdict);
/// Sends a Notice to every member that understands it: the line, and its hint if there is one.
void notify_agents(InquiryTransition& t, const std::string& text, const std::string& hint);
/// Clears the state when `current` is a new generation. Open inquiries end by themselves, at the next tick.
void forget_older_generations(InquiryTransition& t, Generation current);

}  // namespace ddprun::diagnosis
