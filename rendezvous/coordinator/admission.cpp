#include "rendezvous/coordinator/admission.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>

#include "common/job_limits.hpp"
#include "rendezvous/coordinator/nodes.hpp"
#include "rendezvous/coordinator/running.hpp"
#include "rendezvous/coordinator/waiting.hpp"

namespace ddprun::coordinator {
namespace {

bool is_name(const std::string& text) { return !text.empty() && text.size() <= kMaxNameBytes; }

/// Returns the error in the programs of a node; empty: none.
std::string malformed(const std::vector<Program>& programs) {
    std::int64_t slots = 0;
    std::map<std::string_view, int> max_restarts;  // of each role
    for (const Program& program : programs) {
        if (program.role.empty() || program.role.size() > kMaxRunIdBytes)
            return fmt::format("a role needs a name of 1 to {} bytes", kMaxRunIdBytes);
        if (program.slots < 1) return fmt::format("a program has at least 1 worker, not {}", program.slots);
        if (program.max_restarts < 0) return fmt::format("--max-restarts {} is negative", program.max_restarts);
        slots += program.slots;
        const int first = max_restarts.try_emplace(program.role, program.max_restarts).first->second;
        if (first != program.max_restarts) {
            return fmt::format("role {} has --max-restarts {} and {} on this node: pass one value for all its programs",
                               program.role, first, program.max_restarts);
        }
    }
    if (slots < 1 || slots > kMaxSlots)
        return fmt::format("a node has 1 to {} workers, this one was started with {}", kMaxSlots, slots);
    return {};
}

/// Returns the error in the Join itself, regardless of the job; empty: none.
std::string malformed(const NodeId& id, const Join& join) {
    if (!is_name(join.node) || join.node != id)
        return fmt::format("a node needs an id of 1 to {} bytes", kMaxNameBytes);
    if (!is_name(join.host)) return fmt::format("a node needs a name of 1 to {} bytes", kMaxNameBytes);
    for (const std::string* text : {&join.launch.command, &join.launch.user})
        if (text->size() > kMaxRunIdBytes)
            return fmt::format("its command or user has more than {} bytes", kMaxRunIdBytes);
    if (std::string problem = malformed(join.programs); !problem.empty()) return problem;
    if (join.min_nodes < 1 || join.max_nodes < join.min_nodes || join.max_nodes > kMaxNodes) {
        return fmt::format("--nnodes {}:{} is not MIN:MAX with 1 <= MIN <= MAX <= {}", join.min_nodes, join.max_nodes,
                           kMaxNodes);
    }
    return {};
}

constexpr std::string_view kOwnJob =
    "For a job of its own, pass another --rdzv-endpoint or --master-port (with --rdzv-dir or etcd: another --rdzv-id)";

bool is_of_other_user(const State& state, const Join& join) {
    if (!state.shape) return false;
    const Launch& job = state.shape->launch;
    return job.uid != join.launch.uid && job.user != join.launch.user;  // hosts may number or name users differently
}

/// Returns why a node of another user is refused, which learns nothing else about the job.
std::string other_user(const Launch& job, const Launch& node) {
    return fmt::format("this daemon serves a job of user {}, and this node was started by user {}. {}", job.user,
                       node.user, kOwnJob);
}

/// Returns why this node does not belong to the job, as its command shows; empty: it may.
std::string stranger(const JobShape& job, const JobShape& node) {
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
std::string disagreement(const State& state, const Join& join) {
    const JobShape& job = *state.shape;
    const JobShape node = shape_of(join);
    if (std::string other = stranger(job, node); !other.empty()) return other;
    if (nnodes(job) != nnodes(node)) {
        return fmt::format(
            "this job runs with --nnodes {}, this node was started with --nnodes {}: start all nodes with the same "
            "options. {}",
            nnodes(job), nnodes(node), kOwnJob);
    }
    if (job.scale_up != node.scale_up && job.min_nodes != job.max_nodes) {
        return fmt::format(
            "this job runs with --scale-up {}, this node was started with --scale-up {}: start all nodes "
            "with the same options",
            to_string(job.scale_up), to_string(node.scale_up));
    }
    std::size_t roles = state.roles.size();
    const bool names_roles = roles > 1 || join.programs.size() > 1;
    for (const Program& program : join.programs) {
        const auto known = state.roles.find(program.role);
        if (known == state.roles.end()) {
            ++roles;
        } else if (known->second.max_restarts != program.max_restarts) {
            return fmt::format(
                "this job runs with --max-restarts {}{}, this node was started with --max-restarts {}: start all nodes "
                "with the same options",
                known->second.max_restarts, names_roles ? " of role " + program.role : "", program.max_restarts);
        }
    }
    if (roles > kMaxRoles) return fmt::format("a job has at most {} roles: give several nodes one --role", kMaxRoles);
    return {};
}

/// Returns whether the group is being stopped, and the job ends with it.
bool ends_with_group(const State& state) {
    return state.phase == Phase::kStopping && (state.cause.verdict || failure_ends_job(state));
}

/// Returns the role without a restart whose lost connection ends a job of a fixed number of nodes, unless that node
/// reconnects or a spare replaces it; nullopt: the job goes on.
std::optional<std::string> role_that_ends_job(const State& state) {
    const auto disconnected = [](const Node& lost) { return lost.link != Link::kConnected || lost.overdue_since; };
    const auto is_here = [&](const auto& member) {
        const auto node = state.nodes.find(member.first);
        return node != state.nodes.end() && node->second.link == Link::kConnected;
    };
    const bool takes_others = state.shape->min_nodes != state.shape->max_nodes;
    if (takes_others || std::ranges::all_of(state.group.members, is_here)) return std::nullopt;
    return role_without_restart(state, disconnected);
}

/// Returns whether the job has had a worker group.
bool has_started(const State& state) { return state.shape && state.groups_started > 0; }

/// Returns why a job that is over, or is bound to end, needs no further node; empty: it may need one. Such a node may
/// belong to the next job at this endpoint, which must not begin as the rest of this one.
std::string ending(const State& state, const Join& join) {
    const bool is_of_this_job = join.session.has_value();  // it may have been lost: the verdict concerns it
    if (is_of_this_job) return {};
    if (state.phase == Phase::kFinished) return "the job is over: " + state.verdict->reason;
    if (!has_started(state)) return {};
    const std::string& command = state.shape->launch.command;
    if (ends_with_group(state))
        return fmt::format("this daemon serves the job '{}', which is ending: {}", command, state.cause.reason);
    const std::optional<std::string> spent = join.spare ? std::nullopt : role_that_ends_job(state);
    if (!spent) return {};
    const int max_restarts = state.roles.at(*spent).max_restarts;
    return fmt::format(
        "this daemon serves the job '{}', which has lost the connection to a node and {} (--max-restarts {}{})",
        command, max_restarts == 0 ? "is not to be restarted" : "has no restart left", max_restarts,
        of_role(state, *spent));
}

/// Returns whether a job of a fixed number of nodes has them all. A node that has been silent for two heartbeats may be
/// about to be lost, and the joining one may be there to replace it.
bool is_complete(const State& state) {
    if (!state.shape || state.shape->min_nodes != state.shape->max_nodes) return false;
    if (state.nodes.count(Subset::kPresent) < state.shape->max_nodes) return false;  // also if all of them are alive
    const auto is_alive = [&](const auto& entry) {
        const Node& node = entry.second;
        return node.link == Link::kConnected && present(node) &&
               state.now - node.heard_at <= 2 * state.config.heartbeat_interval;
    };
    return std::ranges::count_if(state.nodes, is_alive) >= state.shape->max_nodes;
}

/// Returns why a job of a fixed number of nodes needs no further one; empty: it may need one.
std::string complete(const State& state, const Join& join) {
    const JobShape& job = *state.shape;
    const bool returns = join.session.has_value();  // it was counted as lost, and may wait as a spare
    if (join.spare || returns || !is_complete(state)) return {};
    return fmt::format(
        "this daemon serves the job '{}' of user {}, which has {} already: {} (--nnodes {}). {}. With --spare, this "
        "node waits to take the place of a lost one",
        job.launch.command, job.launch.user, job.max_nodes == 1 ? "its node" : "all its nodes",
        some_of(hosts_of(state, Subset::kPresent)), nnodes(job), kOwnJob);
}

/// Returns whether another node may take the place of one of the nodes, should that be lost.
bool may_replace_any(const State& state) {
    const auto has_restart = [&](const Program& program) { return state.roles.at(program.role).is_left(); };
    return std::ranges::any_of(state.nodes, [&](const auto& entry) {
        return present(entry.second) && std::ranges::all_of(entry.second.join.programs, has_restart);
    });
}

/// Returns why a node cannot take part in a job that has what it needs. It may replace a member whose loss has not been
/// noticed yet, so it tries again for the time that this takes.
Refusal not_needed(const State& state, std::string reason) {
    if (!may_replace_any(state)) return {std::move(reason)};
    return {std::move(reason), true, state.config.lost_after + state.config.reconnect_grace};
}

/// Returns why this Join cannot be served by this job, unless a node is lost; empty: it can.
Refusal lasting_refusal(const State& state, const NodeId& id, const Join& join) {
    if (join.session && *join.session != state.config.session)
        return {"this is not the daemon that the job was started with, which has ended: start the job again"};
    if (is_of_other_user(state, join)) return {other_user(state.shape->launch, join.launch)};
    if (join.run_id && *join.run_id != state.config.run_id) {
        return {fmt::format(
            "this daemon serves run '{}', this node was started for run '{}': pass the same --rdzv-id on all nodes, or "
            "another --rdzv-endpoint",
            state.config.run_id, *join.run_id)};
    }
    if (std::string problem = malformed(id, join); !problem.empty()) return {std::move(problem)};
    if (state.shape) {
        if (std::string problem = disagreement(state, join); !problem.empty()) return {std::move(problem)};
    }
    if (state.nodes.contains(id)) return {};
    if (state.shape) {
        if (std::string problem = complete(state, join); !problem.empty()) return not_needed(state, std::move(problem));
    }
    if (state.nodes.count(Subset::kJoined) >= kMaxNodes) {
        return {fmt::format("{} nodes are connected to this job, or lost their connection a moment ago, which is the "
                            "limit. Start no further node, or end a spare one first",
                            kMaxNodes),
                true};
    }
    return {};
}

}  // namespace

Room room_for_node(const State& state) {
    const bool ends = has_started(state) && (ends_with_group(state) || role_that_ends_job(state));
    if (state.phase == Phase::kFinished || ends) return Room::kEnding;
    return is_complete(state) ? Room::kComplete : Room::kOpen;
}

Refusal refusal(const State& state, const NodeId& id, const Join& join) {
    if (join.protocol != kProtocolVersion) {  // first: the other fields of another version's Join may mean anything
        return {fmt::format(
            "this daemon speaks version {} of the control protocol, this node version {}: use the same ddprun on all "
            "nodes",
            kProtocolVersion, join.protocol)};
    }
    const auto known = state.nodes.find(id);
    if (known == state.nodes.end() && !(join.session && *join.session != state.config.session)) {
        std::string reason = ending(state, join);
        if (!reason.empty() && is_of_other_user(state, join)) reason = other_user(state.shape->launch, join.launch);
        if (!reason.empty()) return {std::move(reason), true};
    }
    return lasting_refusal(state, id, join);
}

}  // namespace ddprun::coordinator
