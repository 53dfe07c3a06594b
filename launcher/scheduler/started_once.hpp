#pragma once
// The allocation of a batch job that starts one program on the first of its hosts. Pure.

#include <string>
#include <string_view>
#include <vector>

#include "common/error.hpp"
#include "launcher/scheduler/allocation.hpp"

namespace ddprun::launcher {

/// Returns the allocation of a job of one host. `hosts` is not empty; `file` is the variable with the name of a file
/// that has them. Errors: kUsage, there are several, with the line that starts ddprun on all of them.
[[nodiscard]] Result<Allocation> allocation_started_once(std::string_view name, std::string_view title,
                                                         std::vector<std::string> hosts, std::string_view file);

/// Returns `names` without those that are there before, in their order.
[[nodiscard]] std::vector<std::string> distinct(const std::vector<std::string>& names);

}  // namespace ddprun::launcher
