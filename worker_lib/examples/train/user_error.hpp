#pragma once
// UserError: an error that the user can correct, in data or options. One rank reports it, all end with one exit code.

#include <stdexcept>
#include <string>

#include "ddp/context.hpp"

namespace train {

inline constexpr int kUserErrorExitCode = 2;

/// Thrown on all ranks or on none. The text is empty on all ranks but the one that reports it.
struct UserError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Thrown by one rank alone, while the other ranks go on with the step.
struct LoneUserError : UserError {
    using UserError::UserError;
};

/// Throws UserError on every rank if any rank has a problem. The text is empty on all ranks but the lowest of those.
/// Collective. `problem`: that of this rank; empty if it has none.
void leave_together_if(ddp::Context& context, const std::string& problem);

}  // namespace train
