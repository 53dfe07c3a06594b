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
    return {join.min_nodes, join.max_nodes, join.max_restarts, join.launch, join.run_id.has_value()};
}

std::string nnodes(const JobShape& shape) {
    return shape.min_nodes == shape.max_nodes ? fmt::format("{}", shape.min_nodes)
                                              : fmt::format("{}:{}", shape.min_nodes, shape.max_nodes);
}

}  // namespace ddprun::coordinator
