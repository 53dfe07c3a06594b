#pragma once
// Checks the arguments of a collective, before any other rank learns of it. Pure.

#include <string>
#include <string_view>

#include "worker_lib/src/bootstrap/group_spec.hpp"
#include "worker_lib/src/operation/operation.hpp"

namespace ddp::detail {

/// Returns what is wrong with one buffer, called `name`, for this backend; empty: nothing.
[[nodiscard]] std::string buffer_complaint(const Buffer& buffer, std::string_view name, Backend backend);

/// Returns what is wrong with the operation as rank spec.rank of its group calls it; empty: nothing.
[[nodiscard]] std::string complaint(const Operation& operation, const GroupSpec& spec, Backend backend);

}  // namespace ddp::detail
