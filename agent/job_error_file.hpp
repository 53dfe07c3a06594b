#pragma once
// The error file that the parent of ddprun, such as a scheduler, names in TORCHELASTIC_ERROR_FILE: after a failure it
// contains the culprit's error, as under torchrun. Called by the launcher before and by Agent after the job.

#include <chrono>
#include <string>
#include <string_view>

#include "common/error.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::agent {

/// Returns the text of the file: that of the culprit's own error file, `worker_text`, with `errorCode` added to a
/// message of torchrun's first format; if it is empty or malformed, a text of that format made from the report. Pure.
[[nodiscard]] std::string job_error_text(const protocol::FailureReport& culprit, std::string_view worker_text,
                                         std::chrono::seconds since_epoch);

/// Removes the file, or empties it if it cannot be removed, so that an earlier attempt's error is not taken for one of
/// this job. A path that is no regular file, such as /dev/null, is left alone. Errors: errno, with the path.
[[nodiscard]] Result<void> clear_job_error_file(const std::string& path);

enum class Existing {
    kReplace,
    kKeep,  ///< nodes may share the path: the culprit's node has written more than the others know
};

/// Writes the file in one step, so that a reader finds all of it or none; in place where that is impossible (a file
/// that is a mount point, a device). Errors: errno, with the path and what to do.
[[nodiscard]] Result<void> write_job_error_file(const std::string& path, std::string_view text, Existing existing);

}  // namespace ddprun::agent
