#pragma once
// Where the output of workers goes on disk: <log-dir>/<run-id>/gen-<g>/rank-<r>.{out,err}, the error file beside them.
// Predictable, never deleted; readable by the owner alone.

#include <filesystem>
#include <string>

#include "common/error.hpp"
#include "common/ids.hpp"
#include "common/unique_fd.hpp"

namespace ddprun::agent {

/// Makes `log_dir`, with its parents, where it is not there. Errors: errno, with the path, when it cannot be made, is no
/// folder, or may not be written to.
[[nodiscard]] Result<void> prepare_log_dir(const std::filesystem::path& log_dir);

/// The folder of one worker group. A run id that is no plain file name has its odd characters replaced by '_'.
[[nodiscard]] std::filesystem::path log_folder(const std::string& log_dir, const std::string& run_id,
                                               Generation generation);

[[nodiscard]] std::string log_file_name(Rank rank, const char* extension);

/// Opens for appending, made with its folders when it is not there. Errors: errno, with the path.
[[nodiscard]] Result<UniqueFd> open_log_file(const std::filesystem::path& path);

}  // namespace ddprun::agent
