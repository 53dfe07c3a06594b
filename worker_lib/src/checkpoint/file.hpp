#pragma once
// One checkpoint file on disk: written so that it is whole or absent, read so that damage is noticed. Rank 0 only.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "ddp/checkpoint.hpp"
#include "worker_lib/src/checkpoint/manifest.hpp"

namespace ddp::detail {

/// Writes `temporary`, fsyncs it, renames it to `path` and fsyncs the directory. Throws Error{Io} (what, where, why,
/// what next); `temporary` is gone then, and a former `path` is as it was.
void write_checkpoint(const std::filesystem::path& path, const std::filesystem::path& temporary,
                      const Manifest& manifest, std::span<const NamedBuffer> state);

/// Reads the whole file. What is wrong with it ("it ends after 1000 of 4096 bytes"), or an empty text.
/// Throws Error{Io} if it cannot be read at all.
[[nodiscard]] std::string find_damage(const std::filesystem::path& path, std::uint64_t step);

/// Fills `state`. Throws Error{Mismatch} for other names, types or sizes, before anything is changed; Error{Io} for a
/// file that is absent, unreadable or damaged, and `state` is unspecified then.
void read_checkpoint(const std::filesystem::path& path, std::uint64_t step, std::span<const NamedBuffer> state);

}  // namespace ddp::detail
