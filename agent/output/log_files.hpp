#pragma once
// Names and opens the workers' log files: <log-dir>/<run-id>/gen-<g>/rank-<r>.{out,err}, with the error file beside
// them. They are readable by their owner alone. No file is deleted but those beyond --log-keep. Any thread.

#include <filesystem>
#include <string>

#include "common/error.hpp"
#include "common/ids.hpp"
#include "common/system/unique_fd.hpp"

namespace ddprun::agent {

/// Creates `log_dir` and its parents if they do not exist. Errors: errno, with the path, if it cannot be created, is
/// not a folder, or is not writable.
[[nodiscard]] Result<void> prepare_log_dir(const std::filesystem::path& log_dir);

/// Returns the folder of one worker group. Two run ids never share one: a run id that is long, or has characters that
/// do not belong into a file name, is changed and followed by its hash.
[[nodiscard]] std::filesystem::path log_folder(const std::string& log_dir, const std::string& run_id,
                                               Generation generation);

/// Returns "rank-<r>.<extension>".
[[nodiscard]] std::string log_file_name(Rank rank, const char* extension);

/// Returns `path` as an absolute one, without "." and ".."; unchanged if the working directory is unknown.
[[nodiscard]] std::filesystem::path full_path(const std::filesystem::path& path);

/// Returns the line about a temporary folder that a failed job has left.
[[nodiscard]] std::string files_kept_text(const std::string& log_dir);

/// Creates folders as mkdir -p does, accessible to their owner alone. Errors: errno, with the path.
[[nodiscard]] Result<void> make_folders(const std::filesystem::path& path);

/// Opens a file for appending, and creates it and its folders if they do not exist. Errors: errno, with the path.
[[nodiscard]] Result<UniqueFd> open_log_file(const std::filesystem::path& path);

}  // namespace ddprun::agent
