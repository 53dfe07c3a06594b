#pragma once
// The error file that the parent of ddprun, such as a scheduler, names in TORCHELASTIC_ERROR_FILE: after a failure it
// contains the culprit's error, as under torchrun. Called by the launcher before and by Agent after the job.

#include <chrono>
#include <string>
#include <string_view>

#include "agent/output/result_file.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::agent {

/// Returns the file at `path`, which may be empty.
[[nodiscard]] ResultFile job_error_file(const std::string& path);

/// Returns the text of the file: that of the culprit's own error file, `worker_text`, with `errorCode` added to a
/// message of torchrun's first format; if it is empty or malformed, a text of that format made from the report. Pure.
[[nodiscard]] std::string job_error_text(const protocol::FailureReport& culprit, std::string_view worker_text,
                                         std::chrono::seconds since_epoch);

}  // namespace ddprun::agent
