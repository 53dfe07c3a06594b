#pragma once
// Transition: the step in progress. Each subject has a file of rules that compute it. Private to the coordinator: other
// code calls step(). A rule changes the state, appends actions in the order in which they must happen, and adds its
// explanation to the reason.

#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/coordinator/coordinator.hpp"

namespace ddprun::coordinator {

struct Transition {
    State state;
    std::vector<Action> actions{};
    std::string reason{};
    std::string decision{};

    void send(const NodeId& node, DaemonMessage message) { actions.push_back(Send{node, std::move(message)}); }
    /// Adds a clause to the reason and the decision.
    void say(std::string_view clause) {
        note(clause);
        append(decision, clause);
    }
    /// Adds a clause to the reason alone. Clauses of this kind come from each node of a large job.
    void note(std::string_view clause) { append(reason, clause); }

private:
    static void append(std::string& text, std::string_view clause) {
        text.append(text.empty() ? "" : "; ").append(clause);
    }
};

}  // namespace ddprun::coordinator
