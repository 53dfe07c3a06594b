#include "rendezvous/coordinator/state.hpp"

#include <fmt/format.h>

namespace ddprun::coordinator {

const char* to_string(Phase phase) {
    switch (phase) {
        case Phase::kGathering: return "gathering";
        case Phase::kOpening: return "opening";
        case Phase::kRunning: return "running";
        case Phase::kStopping: return "stopping";
        case Phase::kFinished: return "finished";
    }
    return "unknown";
}

JobShape shape_of(const Join& join) {
    return {join.min_nodes, join.max_nodes, join.scale_up, join.launch, join.run_id.has_value()};
}

std::string nnodes(const JobShape& shape) {
    return shape.min_nodes == shape.max_nodes ? fmt::format("{}", shape.min_nodes)
                                              : fmt::format("{}:{}", shape.min_nodes, shape.max_nodes);
}

int restarts_spent(const State& state) {
    int sum = 0;
    for (const auto& [role, budget] : state.roles) sum += budget.spent;
    return sum;
}

std::string of_role(const State& state, const std::string& role) {
    return state.roles.size() > 1 ? fmt::format(" of role {}", role) : "";
}

}  // namespace ddprun::coordinator
