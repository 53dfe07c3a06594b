#pragma once
// A directory of checkpoints: "step-200.safetensors" when whole, "step-200.ckpt" if an older version of the library has
// written it; while it is being written, the temporary file that save_fence.hpp names. Rank 0 only, but for the paths.
// Checkpointer::latest() chooses among them.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "ddp/error.hpp"

namespace ddp::detail {

/// Returns the path of a checkpoint that is written.
[[nodiscard]] std::filesystem::path checkpoint_path(const std::filesystem::path& directory, std::uint64_t step);
/// Returns the path that it has in an older format.
[[nodiscard]] std::filesystem::path old_checkpoint_path(const std::filesystem::path& directory, std::uint64_t step);
/// Returns the one of the two that exists; of both, or of none, the first.
[[nodiscard]] std::filesystem::path existing_path(const std::filesystem::path& directory, std::uint64_t step);
/// Returns 200 for "step-200.safetensors" and "step-200.ckpt"; nothing for any other name, as
/// "step-0200.safetensors" of another program.
[[nodiscard]] std::optional<std::uint64_t> step_of(std::string_view name);

/// Creates the directory and its parents. It may be read-only, for a job that only loads. Throws Error{Io}.
void open_directory(const std::filesystem::path& directory);

/// Returns the names of all files there. Throws Error{Io}.
[[nodiscard]] std::vector<std::string> names_in(const std::filesystem::path& directory);

/// Returns Error{Io} with a remedy: "cannot WHAT checkpoint directory DIRECTORY: ERROR".
[[nodiscard]] Error error_in(const std::filesystem::path& directory, std::string_view what,
                             const std::error_code& error);

/// Returns the steps of all checkpoints, whole or damaged, the newest first. Throws Error{Io}.
[[nodiscard]] std::vector<std::uint64_t> steps_in(const std::filesystem::path& directory);

/// Removes all checkpoints up to `step` but the newest `keep`. A file that cannot be removed stays: it costs only room.
void remove_older(const std::filesystem::path& directory, std::uint64_t step, int keep);

}  // namespace ddp::detail
