#pragma once
// The verdict of a job as people read it. Pure.

#include <string>

#include "rendezvous/coordinator/messages.hpp"

namespace ddprun::agent {

/// A text box, with a line end behind every line, for a job that failed; empty for one that succeeded, or that somebody
/// stopped, which is worth the one line of verdict.reason. `program` is what the user asked to run.
[[nodiscard]] std::string format_verdict(const coordinator::Verdict& verdict, const std::string& program);

}  // namespace ddprun::agent
