#pragma once
// A directory of checkpoints: "step-200.ckpt" when whole, "step-200.ckpt.tmp" while one is being written. Rank 0 only.

#include <cstdint>
#include <filesystem>
#include <vector>

namespace ddp::detail {

[[nodiscard]] std::filesystem::path checkpoint_path(const std::filesystem::path& directory, std::uint64_t step);
[[nodiscard]] std::filesystem::path temporary_path(const std::filesystem::path& directory, std::uint64_t step);

/// Creates the directory and its parents, makes sure that files can be made in it, and removes what a killed writer
/// left. Throws Error{Io}.
void open_directory(const std::filesystem::path& directory);

/// Steps of all checkpoints, whole or damaged, the newest first. Throws Error{Io}.
[[nodiscard]] std::vector<std::uint64_t> steps_in(const std::filesystem::path& directory);

/// Removes all checkpoints up to `step` but the newest `keep`. One that cannot be removed is left: the new one is safe.
void remove_older(const std::filesystem::path& directory, std::uint64_t step, int keep);

}  // namespace ddp::detail
