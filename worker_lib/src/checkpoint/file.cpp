#include "worker_lib/src/checkpoint/file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "ddp/error.hpp"
#include "worker_lib/src/checkpoint/memory_pieces.hpp"
#include "worker_lib/src/checkpoint/state.hpp"

namespace ddp::detail {
namespace {

namespace format = ddprun::checkpoint;

/// Returns whether latest() skips the file: it is damaged, or no checkpoint that this program knows.
bool is_unusable(const ddprun::Error& error) {
    return error.code == ddprun::Errc::kMalformed || error.code == ddprun::Errc::kMismatch;
}

[[noreturn]] void refuse(const std::filesystem::path& path, const ddprun::Error& error) {
    if (!is_unusable(error))
        throw Error(ErrorCode::Io, fmt::format("cannot read checkpoint {}: {}", path.string(), error.message));
    throw Error(
        ErrorCode::Io,
        fmt::format("cannot load checkpoint {}: {}{}", path.string(), error.message,
                    error.code == ddprun::Errc::kMalformed ? ". Remove it; an older one will be used then" : ""));
}

/// Opens a file that a Checkpointer has written for this step.
ddprun::Result<format::StoredCheckpoint> open_of_step(const std::filesystem::path& path, std::uint64_t step) {
    auto file = format::open_checkpoint(path);
    if (!file) return file;
    if (file->version == 0)
        return ddprun::Error{ddprun::Errc::kMismatch,
                             "it has no checksums, so no Checkpointer has written it. Move it to another directory"};
    if (file->facts.step != step)
        return ddprun::Error{ddprun::Errc::kMalformed, fmt::format("it is of step {}", file->facts.step)};
    return file;
}

/// The bytes of one tensor of the file that go to a part.
struct Wanted {
    std::size_t begin = 0;  ///< in the file
    std::size_t end = 0;
    const Buffer* part = nullptr;  ///< null: none
};

/// Returns what is wanted of each tensor of the file.
std::vector<Wanted> wanted_of(const format::StoredCheckpoint& file, std::span<const NamedShard> state) {
    std::map<std::string_view, const NamedShard*> by_name;
    for (const NamedShard& shard : state) by_name.emplace(shard.name, &shard);
    std::vector<Wanted> wanted;
    for (const format::Tensor& tensor : file.tensors) {
        const NamedShard& shard = *by_name.at(tensor.name);
        const std::size_t begin = tensor.begin + shard.begin * size_of(shard.part.dtype);
        wanted.push_back({begin, begin + shard.part.bytes(), &shard.part});
    }
    return wanted;
}

}  // namespace

std::string find_damage(const std::filesystem::path& path, std::uint64_t step) {
    const auto file = open_of_step(path, step);
    const ddprun::Result<void> sound = file ? format::verify(*file) : ddprun::Result<void>(file.error());
    if (sound) return {};
    if (!is_unusable(sound.error())) refuse(path, sound.error());
    return sound.error().message;
}

format::StoredCheckpoint open_to_load(const std::filesystem::path& path, std::uint64_t step) {
    auto file = open_of_step(path, step);
    if (!file) refuse(path, file.error());
    return std::move(*file);
}

void read_checkpoint(const format::StoredCheckpoint& file, const std::filesystem::path& path,
                     std::span<const NamedShard> state, Staging* staging) {
    if (const std::string why = difference(file.tensors, state); !why.empty()) {
        throw Error(
            ErrorCode::Mismatch,
            fmt::format("cannot load checkpoint {}: {}. Build the model with the sizes that it was saved with, or pass "
                        "another checkpoint directory",
                        path.string(), why));
    }
    const std::vector<Wanted> wanted = wanted_of(file, state);
    std::vector<std::byte> scratch(format::kBlockBytes);
    for (const format::Chunk& chunk : file.chunks) {
        const Wanted& part = wanted[chunk.tensor];
        if (std::max(chunk.begin, part.begin) >= std::min(chunk.end(), part.end)) continue;
        const auto read =
            format::read_chunk(file, chunk, scratch, [&](std::size_t at, std::span<const std::byte> bytes) {
                const std::size_t begin = std::max(at, part.begin);
                const std::size_t end = std::min(at + bytes.size(), part.end);
                if (begin < end)
                    write_memory(range_of(*part.part, begin - part.begin, end - begin),
                                 bytes.subspan(begin - at, end - begin), staging);
            });
        if (!read) refuse(path, read.error());
    }
    if (has_device_memory(state)) staging->finish_writing();
}

}  // namespace ddp::detail
