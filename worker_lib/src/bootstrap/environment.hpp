#pragma once
// Reads and checks the environment variables of a worker, which the caller passes as a function. Pure, except for the
// functions that look at this process.

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

/// Returns whether ddprun is an ancestor of this process, by the names of processes in /proc. Not known through the
/// boundary of a container, or where /proc hides the processes of other users: false.
[[nodiscard]] bool is_below_ddprun();

/// Throws Error{Environment} if a wrapper (`env -i`, sudo) has left none of ddprun's variables in a process that it has
/// started: each worker would run alone, and succeed.
void refuse_cleared(const Variables& variables, bool below_ddprun);

/// Returns whether ddprun has started this process as a rank, and DDPRUN_SECRET_FD was removed.
[[nodiscard]] bool has_lost_secret(const Variables& variables, bool below_ddprun);

}  // namespace ddp::detail
