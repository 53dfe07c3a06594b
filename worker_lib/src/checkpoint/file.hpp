#pragma once
// One checkpoint file on disk. It is written so that it is whole or absent, and read so that damage is found. Rank 0
// only.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "ddp/checkpoint.hpp"
#include "worker_lib/src/checkpoint/manifest.hpp"
#include "worker_lib/src/checkpoint/save_fence.hpp"
#include "worker_lib/src/checkpoint/staging.hpp"

namespace ddp::detail {

/// Writes and fsyncs a temporary file beside `path`, and returns its name. Takes the hashes meanwhile, in one pass over
/// the tensors. Throws, like commit(), Error{Io} with a remedy or Error{Superseded}, and the errors of `staging`: the
/// temporary file is removed then, and a former `path` unchanged.
/// staging   may be null for a state of host memory
[[nodiscard]] std::filesystem::path write_temporary(const std::filesystem::path& path, const SaveFence& fence,
                                                    const Manifest& manifest, std::span<const NamedBuffer> state,
                                                    Staging* staging = nullptr);
/// Removes the temporary file.
void discard(const std::filesystem::path& temporary);
/// Renames the temporary file to `path` if the fence allows it, and fsyncs the directory.
void commit(const std::filesystem::path& temporary, const std::filesystem::path& path, const SaveFence& fence,
            const Manifest& manifest);

/// Reads the whole file and returns its damage ("it has 1000 bytes instead of 4096"); empty if it has none. Throws
/// Error{Io} if the file cannot be read at all.
[[nodiscard]] std::string find_damage(const std::filesystem::path& path, std::uint64_t step);

/// Reads the file into `state`. Throws Error{Mismatch} for other names, types or sizes, before `state` is changed.
/// Throws Error{Io} for a file that is absent, unreadable or damaged, and the errors of `staging`; `state` is
/// unspecified then.
void read_checkpoint(const std::filesystem::path& path, std::uint64_t step, std::span<const NamedBuffer> state,
                     Staging* staging = nullptr);

}  // namespace ddp::detail
