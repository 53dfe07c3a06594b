#pragma once
// A directory of checkpoints: "step-200.ckpt" when whole, "step-200.ckpt.tmp" while it is being written. Rank 0 only.
// Checkpointer::latest() chooses among them.

#include <cstdint>
#include <filesystem>
#include <vector>

namespace ddp::detail {

[[nodiscard]] std::filesystem::path checkpoint_path(const std::filesystem::path& directory, std::uint64_t step);
[[nodiscard]] std::filesystem::path temporary_path(const std::filesystem::path& directory, std::uint64_t step);

/// Creates the directory and its parents, checks that files can be created in it, and removes the temporary files of a
/// killed run. Throws Error{Io}.
void open_directory(const std::filesystem::path& directory);

/// Returns the steps of all checkpoints, whole or damaged, the newest first. Throws Error{Io}.
[[nodiscard]] std::vector<std::uint64_t> steps_in(const std::filesystem::path& directory);

/// Removes all checkpoints up to `step` but the newest `keep`. A file that cannot be removed stays: it costs only room.
void remove_older(const std::filesystem::path& directory, std::uint64_t step, int keep);

}  // namespace ddp::detail
