#pragma once
// Moves a state's memory in pieces: host memory in place, device memory through Staging. The copy of a piece overlaps
// the host's work on its neighbour.

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "ddp/checkpoint_state.hpp"
#include "worker_lib/src/checkpoint/staging.hpp"

namespace ddp::detail {

/// Bytes that lie together, in host or device memory.
struct MemoryRange {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    bool on_device = false;
};

/// Returns some bytes of a buffer.
[[nodiscard]] MemoryRange range_of(const Buffer& buffer, std::size_t offset_bytes, std::size_t bytes);

/// Calls `use` with each piece's values, in order. They are valid during the call.
/// staging   may be null for ranges of host memory
void read_memory(
    std::span<const MemoryRange> ranges, Staging* staging,
    const std::function<void(std::size_t range, std::size_t offset_bytes, std::span<const std::byte>)>& use);

/// Copies values to a range of the same size, of one piece at most. Device memory has them after
/// Staging::finish_writing().
void write_memory(const MemoryRange& range, std::span<const std::byte> values, Staging* staging);

[[nodiscard]] bool has_device_memory(std::span<const NamedShard> state);
/// Returns the bytes of the largest part in device memory; 0 without one.
[[nodiscard]] std::size_t max_device_bytes(std::span<const NamedShard> state);

}  // namespace ddp::detail
