#pragma once
// PeerMemory: the memory of a peer that this rank can read and write directly, so that large messages are copied once.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "ddp/types.hpp"
#include "worker_lib/src/native/protocol/channel.hpp"
#include "worker_lib/src/native/shm/arena.hpp"

namespace ddp::detail::p2p {

[[nodiscard]] inline std::span<std::byte> bytes_of(const Buffer& buffer) {
    return {static_cast<std::byte*>(buffer.data), buffer.bytes()};
}

struct PeerMemory {
    /// kNone: the peer is on another node. kHeap: it is a neighbour. kOwn: it is this rank, with all its memory.
    enum class Kind : std::uint8_t { kNone, kHeap, kOwn };
    Kind kind = Kind::kNone;
    std::byte* heap = nullptr;
    std::size_t heap_bytes = 0;

    /// Returns the address under which the peer can reach a buffer of ours, for Frame::place; Frame::kNowhere if it
    /// cannot.
    [[nodiscard]] std::uint64_t address_of(const Buffer& buffer, const HeapArena& own_arena) const {
        switch (kind) {
            case Kind::kNone: break;
            case Kind::kHeap: return own_arena.offset_of(buffer.data, buffer.bytes()).value_or(Frame::kNowhere);
            case Kind::kOwn: return reinterpret_cast<std::uintptr_t>(buffer.data);
        }
        return Frame::kNowhere;
    }
    /// Returns the peer's memory at an address that it sent; nothing if `bytes` bytes from there exceed its heap.
    [[nodiscard]] std::optional<std::byte*> at(std::uint64_t address, std::size_t bytes) const {
        if (kind == Kind::kOwn) return reinterpret_cast<std::byte*>(address);
        if (address > heap_bytes || bytes > heap_bytes - address) return std::nullopt;
        return heap + address;
    }
};

}  // namespace ddp::detail::p2p
