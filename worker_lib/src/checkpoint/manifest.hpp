#pragma once
// Manifest: the head of a checkpoint file, as text that the command `head` shows. Padding and the tensors follow it.
// Pure. The format is described in manifest.cpp.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/fnv.hpp"
#include "common/word_hash.hpp"
#include "ddp/checkpoint.hpp"

namespace ddp::detail {

/// One tensor of the file.
struct ManifestEntry {
    std::string name;
    DType dtype = DType::F32;
    std::size_t count = 0;
    std::uint64_t hash = 0;        ///< of the tensor's bytes
    std::size_t offset_bytes = 0;  ///< from the start of the file
    [[nodiscard]] std::size_t bytes() const { return count * size_of(dtype); }
    bool operator==(const ManifestEntry&) const = default;
};

/// The version of the format that is written. Version 1 is read, too.
inline constexpr int kFormatVersion = 2;

struct Manifest {
    int version = kFormatVersion;
    std::uint64_t step = 0;
    int world_size = 0;  ///< of the job that wrote it, for information only
    std::vector<ManifestEntry> entries;
    std::size_t file_bytes = 0;  ///< of a complete file
    bool operator==(const Manifest&) const = default;
};

/// Hashes a tensor as files of a version do: with WordHash64, which runs at the speed of memory; before version 2 with
/// FNV-1a.
class TensorHash {
public:
    explicit TensorHash(int version) : is_fnv_(version < 2) {}
    void add(std::span<const std::byte> bytes) { is_fnv_ ? fnv_.add(bytes) : words_.add(bytes); }
    [[nodiscard]] std::uint64_t value() const { return is_fnv_ ? fnv_.value() : words_.value(); }

private:
    bool is_fnv_;
    ddprun::Fnv64 fnv_;
    ddprun::WordHash64 words_;
};

inline constexpr std::size_t kTensorAlignBytes = 128;
inline constexpr std::size_t kPreambleBytes = 64;        ///< of the first line, which holds the length of the head
inline constexpr std::size_t kMaxHeadBytes = 64u << 20;  ///< a larger length in a file is damage

/// Throws Error{InvalidArgument} for a state that a group of `backend` cannot store: device memory on the native
/// backend, null or misaligned buffers, and names that are empty, duplicate, or contain control characters.
void check_state(std::span<const NamedBuffer> state, Backend backend);

/// Returns "tensor 3 'fc1.weight' f32[4096]", and " on cuda" for device memory.
[[nodiscard]] std::string describe(std::size_t i, const NamedBuffer& named);

/// Returns the manifest of a checked state, without the hashes: chooses the offsets, which do not depend on them.
[[nodiscard]] Manifest make_manifest(std::uint64_t step, int world_size, std::span<const NamedBuffer> state);

/// Returns the head of the file, padded so that the first tensor follows directly.
[[nodiscard]] std::string encode(const Manifest& manifest);

/// Returns the length of the whole head, given the first kPreambleBytes of a file; nothing if that is not a checkpoint.
[[nodiscard]] std::optional<std::size_t> head_bytes(std::string_view preamble);

/// Returns the manifest in a whole head; nothing if the head is damaged.
[[nodiscard]] std::optional<Manifest> decode(std::string_view head);

/// Returns why `manifest` cannot be loaded into `state`, with the first tensor that differs; empty if it can.
[[nodiscard]] std::string difference(const Manifest& manifest, std::span<const NamedBuffer> state);

}  // namespace ddp::detail
