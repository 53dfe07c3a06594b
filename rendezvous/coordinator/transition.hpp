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

    void send(const NodeId& node, DaemonMessage message) { actions.push_back(Send{node, std::move(message)}); }
    /// Adds a clause to the reason.
    void say(std::string_view clause) { reason.append(reason.empty() ? "" : "; ").append(clause); }
};

}  // namespace ddprun::coordinator
