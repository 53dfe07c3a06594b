#pragma once
// The refusal that starters of several processes have in common. Pure.

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "common/error.hpp"
#include "common/job_limits.hpp"
#include "launcher/scheduler/variables.hpp"

namespace ddprun::launcher {

inline constexpr int kMaxTasks = kMaxNodes * kMaxSlots;

/// Returns the error of a start of `tasks` ddprun on one node; `line` starts one on each.
[[nodiscard]] inline Error several_tasks_error(std::string_view starter, int tasks, std::string_view line) {
    return start_error(fmt::format(
        "{0} has started {1} tasks on a node, but ddprun is started once per node and starts the workers itself. Start "
        "it with {2}, with --nproc-per-node {1} for as many workers.",
        starter, tasks, line));
}

/// Returns the number of nodes of `tasks`, of which `local_tasks` are on this one.
[[nodiscard]] inline int nodes_of_tasks(int tasks, int local_tasks) { return (tasks + local_tasks - 1) / local_tasks; }

}  // namespace ddprun::launcher
