#pragma once
// The environment variables of a worker, read and checked. Pure: the variables come from a function.

#include <functional>
#include <optional>
#include <string>

#include "ddp/context.hpp"

namespace ddp::detail {

/// The value of a variable, or nothing when it is not set.
using Variables = std::function<std::optional<std::string>(const char* name)>;

/// Of this process.
[[nodiscard]] Variables process_variables();

/// This machine's name, for messages: one word, never empty.
[[nodiscard]] std::string hostname();

/// Nothing set: a world of one. Throws Error{Environment} naming the variable, its text and what was expected.
[[nodiscard]] Environment read_environment(const Variables& variables);

/// Throws Error{Environment} when the numbers contradict each other.
void check(const Environment& environment);

}  // namespace ddp::detail
