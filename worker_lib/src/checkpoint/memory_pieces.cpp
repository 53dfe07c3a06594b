#include "worker_lib/src/checkpoint/memory_pieces.hpp"

#include <algorithm>
#include <cstring>

namespace ddp::detail {
namespace {

struct MemoryPiece {
    std::size_t range = 0;
    std::size_t offset_bytes = 0;
    std::span<const std::byte> memory;
    bool on_device = false;
};

std::vector<MemoryPiece> pieces_of(std::span<const MemoryRange> ranges, const Staging* staging) {
    std::vector<MemoryPiece> pieces;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
        const MemoryRange& range = ranges[i];
        const std::size_t piece_bytes = range.on_device ? staging->piece_bytes() : Staging::kPieceBytes;
        for (std::size_t done = 0; done < range.bytes; done += piece_bytes) {
            const std::size_t bytes = std::min(piece_bytes, range.bytes - done);
            pieces.push_back({i, done, {range.data + done, bytes}, range.on_device});
        }
    }
    return pieces;
}

}  // namespace

MemoryRange range_of(const Buffer& buffer, std::size_t offset_bytes, std::size_t bytes) {
    return {static_cast<std::byte*>(buffer.data) + offset_bytes, bytes, buffer.device == Device::Cuda};
}

void read_memory(std::span<const MemoryRange> ranges, Staging* staging,
                 const std::function<void(std::size_t, std::size_t, std::span<const std::byte>)>& use) {
    const std::vector<MemoryPiece> pieces = pieces_of(ranges, staging);
    auto ahead = pieces.begin();  // after the last piece whose copy has been started
    const auto start_next = [&] {
        ahead = std::find_if(ahead, pieces.end(), [](const MemoryPiece& next) { return next.on_device; });
        if (ahead == pieces.end()) return;
        staging->start_reading(ahead->memory.data(), ahead->memory.size());
        ++ahead;
    };
    start_next();
    for (const MemoryPiece& next : pieces) {
        std::span<const std::byte> values = next.memory;
        if (next.on_device) {
            values = staging->finish_reading();
            start_next();
        }
        use(next.range, next.offset_bytes, values);
    }
}

void write_memory(const MemoryRange& range, std::span<const std::byte> values, Staging* staging) {
    if (values.empty()) return;
    if (!range.on_device) {
        std::memcpy(range.data, values.data(), values.size());
        return;
    }
    std::memcpy(staging->next(values.size()).data(), values.data(), values.size());
    staging->start_writing(range.data, values.size());
}

bool has_device_memory(std::span<const NamedShard> state) { return max_device_bytes(state) > 0; }

std::size_t max_device_bytes(std::span<const NamedShard> state) {
    std::size_t max = 0;
    for (const NamedShard& shard : state) {
        if (shard.part.device == Device::Cuda) max = std::max(max, shard.part.bytes());
    }
    return max;
}

}  // namespace ddp::detail
