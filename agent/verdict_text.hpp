#pragma once
// Formats the verdict of a job for the console. Used by StatusReporter and by the launcher of emulated nodes. Pure.

#include <string>

#include "rendezvous/protocol/messages.hpp"

namespace ddprun::agent {

/// The names of a job, for its verdict and its report.
struct JobName {
    std::string program;       ///< or several: "trainer and server"
    std::string command = {};  ///< the programs as typed; empty: there is one without arguments
    std::string run_id = {};   ///< from --rdzv-id; empty: the user gave none
    /// Of a Python program on this node, with the reason of its choice; empty: no Python program.
    std::string interpreter = {};
    std::string started = {};  ///< what the workers execute, for the report
};

/// The part of the culprit's stderr that the box shows.
enum class CulpritStderr {
    kQuoted,            ///< its last lines
    kShownAbove,        ///< a reference: the same console has shown it
    kShownAmongOthers,  ///< a reference with the last line: other workers have written to that console, too
};

/// Returns what the user can do about the verdict, in sentences; empty: nothing that the verdict does not say.
[[nodiscard]] std::string advice(const protocol::Verdict& verdict, const JobName& job);

/// Returns whether the end of the job needs more than the line of verdict.reason: it failed, or did not stop in time.
/// `ddprun check` that ends with findings has printed them.
[[nodiscard]] bool needs_box(const protocol::Verdict& verdict, const JobName& job);

/// Returns a text box, with a line end behind every line; empty: needs_box() is false.
[[nodiscard]] std::string format_verdict(const protocol::Verdict& verdict, const JobName& job,
                                         CulpritStderr shown = CulpritStderr::kQuoted);

}  // namespace ddprun::agent
