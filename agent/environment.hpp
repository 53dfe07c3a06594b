#pragma once
// What a worker is given: its environment and its arguments (docs/environment.md). Pure.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/environment.hpp"
#include "common/ids.hpp"
#include "rendezvous/coordinator/messages.hpp"

namespace ddprun::agent {

/// What a worker is told beside the assignment that its whole node got.
struct WorkerPlace {
    LocalRank local_rank{};
    int slots = 1;         ///< workers on this node
    int allowed_cpus = 1;  ///< that this node's workers may use together
    std::string node_name;
    std::string run_id;
    std::string role;
    std::string error_file;  ///< where a Python worker may leave its exception
    bool virtual_local_rank = false;  ///< it believes that it is alone on a node of one GPU
};

/// CUDA_VISIBLE_DEVICES of a worker that is to see one GPU alone, by what this process sees (null: all): the entry of
/// its place. Nothing: the list is too short.
[[nodiscard]] std::optional<std::string> gpu_of(const std::string* visible, LocalRank local_rank);

/// RANK of a worker.
[[nodiscard]] Rank rank_of(const coordinator::Assignment& assignment, LocalRank local_rank);

/// `base` (the agent's own environment) with the variables of docs/environment.md set.
[[nodiscard]] Environment worker_environment(Environment base, const coordinator::Assignment& assignment,
                                             const WorkerPlace& place);

/// `command` with ${local_rank} and $local_rank replaced in the arguments; any other '$' is left alone.
[[nodiscard]] std::vector<std::string> worker_command(std::vector<std::string> command, LocalRank local_rank);

/// Who printed a line.
struct LineSource {
    std::string host;
    std::string role;
    LocalRank local_rank{};
    Rank rank{};
};

/// What labelled lines begin with: "[host:rank] ", or `text` with ${role_name}, ${local_rank}, ${rank} and ${hostname}
/// (without its domain) replaced, with or without braces; any other '$' is left alone, but "$$" is one.
[[nodiscard]] std::string worker_label(std::string_view text, const LineSource& source);

[[nodiscard]] std::vector<std::string> to_strings(const Environment& environment);

}  // namespace ddprun::agent
