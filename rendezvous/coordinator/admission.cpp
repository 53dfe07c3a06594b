#include "rendezvous/coordinator/admission.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "common/job_limits.hpp"
#include "rendezvous/coordinator/nodes.hpp"
#include "rendezvous/coordinator/waiting.hpp"

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

constexpr std::string_view kOwnJob = "For a job of its own, pass another --rdzv-endpoint or --master-port";

bool is_same_user(const Launch& left, const Launch& right) {
    return left.uid == right.uid || left.user == right.user;  // hosts may number or name their users differently
}

/// Returns why this node does not belong to the job, as its command or user shows; empty: it may.
std::string stranger(const JobShape& job, const JobShape& node) {
    if (!is_same_user(job.launch, node.launch)) {
        return fmt::format("this daemon serves a job of user {}, and this node was started by user {}. {}",
                           job.launch.user, node.launch.user, kOwnJob);
    }
    const bool differs_on_purpose = job.named && node.named;
    if (job.launch.command_hash == node.launch.command_hash || differs_on_purpose) return {};
    return fmt::format(
        "this daemon serves the job '{}', and this node was started with {}. Start all nodes of a job with the same "
        "program and arguments, or pass the same --rdzv-id to all of them if their commands differ on purpose. {}",
        job.launch.command,
        job.launch.command == node.launch.command ? "other arguments, in the part that is not shown"
                                                  : fmt::format("'{}'", node.launch.command),
        kOwnJob);
}

/// Returns how this node's options differ from those of the nodes before it; empty: they agree.
std::string disagreement(const JobShape& job, const JobShape& node) {
    if (std::string other = stranger(job, node); !other.empty()) return other;
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

/// Returns why a job of a fixed number of nodes needs no further one; empty: it may need one. A node that has been
/// silent for two heartbeats may be about to be lost, and the joining one may be there to replace it.
std::string complete(const State& state, const Join& join) {
    const JobShape& job = *state.shape;
    const bool returns = join.session.has_value();  // it was counted as lost, and may wait as a spare
    if (job.min_nodes != job.max_nodes || join.spare || returns) return {};
    const auto is_alive = [&](const Node& node) {
        return node.link == Link::kConnected && !node.leaving &&
               state.now - node.heard_at <= 2 * state.config.heartbeat_interval;
    };
    const auto alive = std::ranges::count_if(state.nodes, [&](const auto& entry) { return is_alive(entry.second); });
    if (alive < job.max_nodes) return {};
    return fmt::format(
        "this daemon serves the job '{}' of user {}, which has {} already: {} (--nnodes {}). {}. With --spare, this "
        "node waits to take the place of a lost one",
        job.launch.command, job.launch.user, job.max_nodes == 1 ? "its node" : "all its nodes",
        some_of(hosts_of(state, present)), nnodes(job), kOwnJob);
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
        if (std::string problem = disagreement(*state.shape, shape_of(join)); !problem.empty()) return problem;
    }
    const auto known = state.nodes.find(id);
    if (known != state.nodes.end()) {
        return known->second.link == Link::kConnected ? fmt::format("a node with the id {} is connected already", id)
                                                      : "";
    }
    if (state.shape) {
        if (std::string problem = complete(state, join); !problem.empty()) return problem;
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
