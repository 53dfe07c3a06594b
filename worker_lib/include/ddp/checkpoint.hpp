#pragma once
// Checkpointer: parameters on disk that are either whole or absent, whatever is killed when. For contexts of the native
// backend (host memory) so far.

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
    /// Collective. Creates `dir` if it is missing (rank 0) and removes temporaries that a killed run left there.
    /// Throws Error{Io} naming the directory and the cause.
    Checkpointer(std::filesystem::path dir, Context& context, int keep = 3);

    /// Collective; every rank passes the same names and sizes; rank 0 writes: temporary file, fsync, rename, fsync of
    /// the directory. The newest `keep` are kept. Throws Error{Io} on every rank when rank 0 could not write (no room,
    /// …).
    void save(std::uint64_t step, std::span<const NamedBuffer> state);

    /// Collective. The newest step whose file is complete (sizes and checksum), as rank 0 sees it.
    [[nodiscard]] std::optional<std::uint64_t> latest();

    /// Collective. Rank 0 reads and broadcasts. Throws Error{Io} or Error{Mismatch} (other names or sizes) on every
    /// rank.
    void load(std::uint64_t step, std::span<const NamedBuffer> state);

private:
    std::filesystem::path dir_;
    Context* context_;
    int keep_;
};

}  // namespace ddp
