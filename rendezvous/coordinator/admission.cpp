#include "rendezvous/coordinator/admission.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "common/job_limits.hpp"

namespace ddprun::coordinator {
namespace {

bool is_name(const std::string& text) { return !text.empty() && text.size() <= kMaxNameBytes; }

/// Returns the error in the Join itself, regardless of the job; empty: none.
std::string malformed(const NodeId& id, const Join& join) {
    if (!is_name(join.node) || join.node != id)
        return fmt::format("a node needs an id of 1 to {} bytes", kMaxNameBytes);
    if (!is_name(join.host)) return fmt::format("a node needs a name of 1 to {} bytes", kMaxNameBytes);
    if (join.slots < 1 || join.slots > kMaxSlots) {
        return fmt::format("a node has 1 to {} workers, this one was started with {}", kMaxSlots, join.slots);
    }
    if (join.min_nodes < 1 || join.max_nodes < join.min_nodes || join.max_nodes > kMaxNodes) {
        return fmt::format("--nnodes {}:{} is not MIN:MAX with 1 <= MIN <= MAX <= {}", join.min_nodes, join.max_nodes,
                           kMaxNodes);
    }
    if (join.max_restarts < 0) return fmt::format("--max-restarts {} is negative", join.max_restarts);
    return {};
}

/// Returns how this node's options differ from those of the nodes before it; empty: they agree.
std::string disagreement(const JobShape& job, const JobShape& node) {
    if (nnodes(job) != nnodes(node)) {
        return fmt::format(
            "this job runs with --nnodes {}, this node was started with --nnodes {}: start all nodes with the same "
            "options",
            nnodes(job), nnodes(node));
    }
    if (job.max_restarts != node.max_restarts) {
        return fmt::format(
            "this job runs with --max-restarts {}, this node was started with --max-restarts {}: start all nodes with "
            "the same options",
            job.max_restarts, node.max_restarts);
    }
    return {};
}

}  // namespace

std::string refusal(const State& state, const NodeId& id, const Join& join) {
    if (join.protocol != kProtocolVersion) {  // first: the other fields of another version's Join may mean anything
        return fmt::format(
            "this daemon speaks version {} of the control protocol, this node version {}: use the same ddprun on all "
            "nodes",
            kProtocolVersion, join.protocol);
    }
    if (join.session && *join.session != state.config.session) {
        return "this is not the daemon that the job was started with, which has ended: start the job again";
    }
    if (join.run_id && *join.run_id != state.config.run_id) {
        return fmt::format(
            "this daemon serves run '{}', this node was started for run '{}': pass the same --rdzv-id on all nodes, or "
            "another --rdzv-endpoint",
            state.config.run_id, *join.run_id);
    }
    if (std::string problem = malformed(id, join); !problem.empty()) return problem;
    if (state.shape) {
        const JobShape wanted{join.min_nodes, join.max_nodes, join.max_restarts};
        if (std::string problem = disagreement(*state.shape, wanted); !problem.empty()) return problem;
    }
    const auto known = state.nodes.find(id);
    if (known != state.nodes.end()) {
        return known->second.link == Link::kConnected ? fmt::format("a node with the id {} is connected already", id)
                                                      : "";
    }
    const auto joined = [](const auto& entry) { return entry.second.link != Link::kLost; };
    if (std::ranges::count_if(state.nodes, joined) >= kMaxNodes) {
        return fmt::format(
            "{} nodes are connected to this job, or lost their connection a moment ago, which is the limit. Start no "
            "further node, or end a spare one first",
            kMaxNodes);
    }
    return {};
}

}  // namespace ddprun::coordinator
