#pragma once
// WorkerEvidence: all that this node knows about one worker and its end, as one value. Made by Worker::evidence().

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.hpp"
#include "common/system/exit_status.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::agent {

/// The number of operations of the flight record that the evidence contains.
inline constexpr std::size_t kEvidenceOperations = 16;

struct WorkerEvidence {
    pid_t pid = -1;
    std::optional<ExitStatus> status;                     ///< empty: it has not ended
    protocol::OomKill oom = protocol::OomKill::kUnknown;  ///< whether the kernel killed it because of memory
    std::optional<Duration> failing_for = {};             ///< since the first recent sign of a failure of its own
    std::vector<std::string> last_lines = {};             ///< the end of its stderr, oldest first
    std::string error_message = {};                       ///< from its error file; empty: there is none
    std::string error_text = {};                          ///< of that file, whole
    std::string error_file_problem = {};                  ///< the error of reading its error file; empty: none
    protocol::FlightRecord record = {};                   ///< empty: it has written none
};

}  // namespace ddprun::agent
