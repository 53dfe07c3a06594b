#pragma once
// One checkpoint file on disk. It is written so that it is whole or absent, and read so that damage is found. Rank 0
// only.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "ddp/checkpoint.hpp"
#include "worker_lib/src/checkpoint/manifest.hpp"

namespace ddp::detail {

/// Writes `temporary`, fsyncs it, renames it to `path` and fsyncs the directory. Throws Error{Io} with a remedy:
/// `temporary` is removed then, and a former `path` unchanged.
void write_checkpoint(const std::filesystem::path& path, const std::filesystem::path& temporary,
                      const Manifest& manifest, std::span<const NamedBuffer> state);

/// Reads the whole file and returns its damage ("it has 1000 bytes instead of 4096"); empty if it has none. Throws
/// Error{Io} if the file cannot be read at all.
[[nodiscard]] std::string find_damage(const std::filesystem::path& path, std::uint64_t step);

/// Reads the file into `state`. Throws Error{Mismatch} for other names, types or sizes, before `state` is changed.
/// Throws Error{Io} for a file that is absent, unreadable or damaged; `state` is unspecified then.
void read_checkpoint(const std::filesystem::path& path, std::uint64_t step, std::span<const NamedBuffer> state);

}  // namespace ddp::detail
