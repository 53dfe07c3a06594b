#pragma once
// What the user can put right: data, options. One rank says it, all ranks leave with the same exit code.

#include <stdexcept>
#include <string>

#include "ddp/context.hpp"

namespace train {

inline constexpr int kUserErrorExitCode = 2;

/// Thrown on all ranks or on none. The text is empty where another rank says it.
struct UserError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Collective. `problem` is what this rank found wrong, empty if nothing. If any rank has a problem, throws UserError
/// on every rank; only the lowest of those ranks gets its text.
void leave_together_if(ddp::Context& context, const std::string& problem);

}  // namespace train
