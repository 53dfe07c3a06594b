#pragma once
// Reads and checks the environment variables of a worker. Pure: the caller passes a function that returns them.

#include <functional>
#include <optional>
#include <string>

#include "ddp/context.hpp"

namespace ddp::detail {

/// Returns the value of a variable, or nothing when it is not set.
using Variables = std::function<std::optional<std::string>(const char* name)>;

/// Returns the variables of this process.
[[nodiscard]] Variables process_variables();

/// Returns this machine's name, for messages: one word, never empty.
[[nodiscard]] std::string hostname();

/// Returns the position of this process in the job; with none of the variables set, a world of one rank. Throws
/// Error{Environment} naming the variable, its text and the expected values.
[[nodiscard]] Environment read_environment(const Variables& variables);

/// Throws Error{Environment} when the numbers contradict each other.
void check(const Environment& environment);

}  // namespace ddp::detail
