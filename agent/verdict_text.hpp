#pragma once
// The verdict of a job as people read it. Pure.

#include <string>

#include "rendezvous/coordinator/messages.hpp"

namespace ddprun::agent {

struct JobName {
    std::string program;
    std::string command = {};  ///< with its arguments; empty: it has none
    std::string run_id = {};   ///< that the user gave; empty: none
};

/// A text box, with a line end behind every line, for a job that failed; empty for one that succeeded, or that somebody
/// stopped, which is worth the one line of verdict.reason.
[[nodiscard]] std::string format_verdict(const coordinator::Verdict& verdict, const JobName& job);
/// `program` is what the user asked to run.
[[nodiscard]] std::string format_verdict(const coordinator::Verdict& verdict, const std::string& program);

}  // namespace ddprun::agent
