#pragma once
// Expands a scheduler's list of hosts. Pure.

#include <string>
#include <string_view>
#include <vector>

#include "common/error.hpp"

namespace ddprun::launcher {

/// Returns the hosts of a list in SLURM's notation, such as "login,n[1-3,07-09],rack[0-1]n[00-15]-ib", in order. The
/// last brackets of a name change first; numbers keep the width of their range's first one. Errors: kMalformed with the
/// part that cannot be read; kLimit beyond kMaxNodes.
[[nodiscard]] Result<std::vector<std::string>> expand_host_list(std::string_view list);

}  // namespace ddprun::launcher
