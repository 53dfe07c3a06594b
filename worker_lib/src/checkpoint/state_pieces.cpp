#include "worker_lib/src/checkpoint/state_pieces.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "ddp/error.hpp"

namespace ddp::detail {
namespace {

struct PieceMemory {
    Piece piece;
    std::span<std::byte> memory;
    bool on_device = false;
};

std::vector<PieceMemory> pieces_of(std::span<const NamedBuffer> state, const Staging* staging) {
    std::vector<PieceMemory> pieces;
    for (std::size_t i = 0; i < state.size(); ++i) {
        const Buffer& buffer = state[i].buffer;
        const std::span<std::byte> all(static_cast<std::byte*>(buffer.data), buffer.bytes());
        const bool on_device = buffer.device == Device::Cuda && !all.empty();
        const std::size_t piece_bytes = on_device ? staging->piece_bytes() : Staging::kPieceBytes;
        std::size_t done = 0;
        do {
            const std::size_t bytes = std::min(piece_bytes, all.size() - done);
            pieces.push_back({{i, done, done + bytes == all.size()}, all.subspan(done, bytes), on_device});
            done += bytes;
        } while (done < all.size());
    }
    return pieces;
}

/// Returns an alignment that serves all types, so that a copy may be used as elements.
std::size_t padded(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

void read_state(std::span<const NamedBuffer> state, Staging* staging,
                const std::function<void(const Piece&, std::span<const std::byte>)>& use) {
    const std::vector<PieceMemory> pieces = pieces_of(state, staging);
    auto ahead = pieces.begin();  // after the last piece whose copy has been started
    const auto start_next = [&] {
        ahead = std::find_if(ahead, pieces.end(), [](const PieceMemory& next) { return next.on_device; });
        if (ahead == pieces.end()) return;
        staging->start_reading(ahead->memory.data(), ahead->memory.size());
        ++ahead;
    };
    start_next();
    for (const PieceMemory& next : pieces) {
        std::span<const std::byte> values = next.memory;
        if (next.on_device) {
            values = staging->finish_reading();
            start_next();
        }
        use(next.piece, values);
    }
}

void write_state(std::span<const NamedBuffer> state, Staging* staging,
                 const std::function<void(const Piece&, std::span<std::byte>)>& fill) {
    for (const PieceMemory& next : pieces_of(state, staging)) {
        if (!next.on_device) {
            fill(next.piece, next.memory);
            continue;
        }
        fill(next.piece, staging->next(next.memory.size()));
        staging->start_writing(next.memory.data(), next.memory.size());
    }
    if (has_device_memory(state)) staging->finish_writing();
}

bool has_device_memory(std::span<const NamedBuffer> state) { return max_device_bytes(state) > 0; }

std::size_t max_device_bytes(std::span<const NamedBuffer> state) {
    std::size_t max = 0;
    for (const NamedBuffer& named : state) {
        if (named.buffer.device == Device::Cuda) max = std::max(max, named.buffer.bytes());
    }
    return max;
}

HostCopy::HostCopy(std::span<const NamedBuffer> state, Staging* staging) {
    std::size_t total = 0;
    std::vector<std::size_t> offsets;
    for (const NamedBuffer& named : state) {
        offsets.push_back(total);
        total += padded(named.buffer.bytes());
    }
    try {
        memory_ = std::make_unique_for_overwrite<std::byte[]>(total);
    } catch (const std::bad_alloc&) {
        throw Error(
            ErrorCode::System,
            fmt::format("save_async: no room for a copy of {} bytes in host memory. Use save() instead", total));
    }
    read_state(state, staging, [&](const Piece& piece, std::span<const std::byte> values) {
        if (!values.empty())
            std::memcpy(memory_.get() + offsets[piece.tensor] + piece.offset_bytes, values.data(), values.size());
    });
    for (std::size_t i = 0; i < state.size(); ++i) {
        const Buffer& buffer = state[i].buffer;
        state_.push_back({state[i].name, Buffer(memory_.get() + offsets[i], buffer.count, buffer.dtype)});
    }
}

}  // namespace ddp::detail
