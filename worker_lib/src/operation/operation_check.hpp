#pragma once
// What can be said against a collective before any rank hears of it. Pure.

#include <string>
#include <string_view>

#include "worker_lib/src/backend.hpp"

namespace ddp::detail {

/// What is wrong with one buffer, called `name`, for this backend; or nothing.
[[nodiscard]] std::string buffer_complaint(const Buffer& buffer, std::string_view name, Backend backend);

/// What is wrong with the operation as rank spec.rank of its group calls it, or nothing.
[[nodiscard]] std::string complaint(const Operation& operation, const GroupSpec& spec, Backend backend);

}  // namespace ddp::detail
