#pragma once
// Reads checkpoint files, so that damage is found, and named by its tensor.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "common/checkpoint/stored.hpp"
#include "ddp/checkpoint_state.hpp"
#include "worker_lib/src/checkpoint/staging.hpp"

namespace ddp::detail {

/// Reads the whole file and returns its damage ("it is of step 7"), or why this program cannot use it; empty if
/// it is whole. Throws Error{Io} if the file
/// cannot be read at all.
[[nodiscard]] std::string find_damage(const std::filesystem::path& path, std::uint64_t step);

/// Opens the file of a step. Throws Error{Io} for a file that is absent, unreadable or damaged.
[[nodiscard]] ddprun::checkpoint::StoredCheckpoint open_to_load(const std::filesystem::path& path, std::uint64_t step);

/// Reads the parts of `state` from an open file. Throws Error{Mismatch} for other names, types or sizes, before `state`
/// is changed. Throws Error{Io} for a file that is unreadable or damaged where it is read, and the errors of `staging`;
/// `state` is unspecified then.
/// path      for errors
/// staging   may be null for a state of host memory
void read_checkpoint(const ddprun::checkpoint::StoredCheckpoint& file, const std::filesystem::path& path,
                     std::span<const NamedShard> state, Staging* staging = nullptr);

}  // namespace ddp::detail
