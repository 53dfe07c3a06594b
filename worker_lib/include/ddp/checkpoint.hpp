#pragma once
// Checkpointer: parameters on disk that are either whole or absent, whatever is killed when. For groups of the native
// backend (host memory) so far.
//
// All of it is collective, and fails on every rank alike: before a file or a buffer is touched the ranks compare what
// they were called with, so a group that has failed already costs nothing that is on disk.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddp/context.hpp"
#include "ddp/types.hpp"

namespace ddp {

/// Host memory under a name that stays the same between save and load.
struct NamedBuffer {
    std::string name;
    Buffer buffer;
};

class Checkpointer {
public:
    /// Creates `dir` if it is missing (rank 0 of the group) and removes temporaries that a killed run left there.
    /// `keep` is at least 1. Throws Error{Io} naming the directory and the cause. The group is used as long as this
    /// object is; after a shrink(), make another one of the group of those who are left.
    Checkpointer(std::filesystem::path dir, ProcessGroup& group, int keep = 3);
    /// The same for all ranks of the job: its world().
    Checkpointer(std::filesystem::path dir, Context& context, int keep = 3);

    /// Every rank passes the same step, names, types and sizes; rank 0 writes its values: temporary file, fsync, rename,
    /// fsync of the directory. When all know that it is written, the newest `keep` are kept. Throws Error{Mismatch}
    /// naming what differs and on which ranks, Error{InvalidArgument} for a state that cannot be stored (null buffers,
    /// names that are empty or double), before anything is written; Error{Io} when rank 0 could not write (no room, …).
    void save(std::uint64_t step, std::span<const NamedBuffer> state);

    /// The newest step whose file is complete (sizes and checksum), as rank 0 sees it.
    [[nodiscard]] std::optional<std::uint64_t> latest();

    /// Every rank passes the same as to save(); rank 0 reads and broadcasts. Throws Error{Mismatch} when the ranks do
    /// not agree, or the file holds other names, types or sizes, and Error{InvalidArgument} as save(): no buffer is
    /// changed then. Throws Error{Io} for a file that is absent, unreadable or damaged.
    void load(std::uint64_t step, std::span<const NamedBuffer> state);

private:
    std::filesystem::path dir_;
    ProcessGroup* group_;
    int keep_;
};

}  // namespace ddp
