#pragma once
// UserError: an error that the user can correct, in data or options. One rank reports it.

#include <stdexcept>
#include <string>

#include "ddp/context.hpp"

namespace train {

inline constexpr int kUserErrorExitCode = 2;

/// Thrown on all ranks, with a text on the one that reports it and without one on the others; or by one rank alone,
/// with a text, while the others go on with the step. main() passes it to ddp::fail().
struct UserError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Throws UserError on every rank if any rank has a problem. The text is empty on all ranks but the lowest of those.
/// Collective. `problem`: that of this rank; empty if it has none.
void leave_together_if(ddp::Context& context, const std::string& problem);

}  // namespace train
