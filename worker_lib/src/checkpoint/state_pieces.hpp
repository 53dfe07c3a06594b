#pragma once
// Passes over a state in pieces, in the order of the file: host memory in place, device memory through Staging. The
// copy of a piece overlaps the host's work on its neighbour. Rank 0 only.

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "ddp/checkpoint.hpp"
#include "worker_lib/src/checkpoint/staging.hpp"

namespace ddp::detail {

/// A part of a tensor. An empty tensor is one empty piece.
struct Piece {
    std::size_t tensor = 0;        ///< index in the state
    std::size_t offset_bytes = 0;  ///< in the tensor
    bool is_last = false;          ///< of its tensor
};

/// Calls `use` with each piece's values. They are valid during the call.
/// staging   may be null for a state of host memory
void read_state(std::span<const NamedBuffer> state, Staging* staging,
                const std::function<void(const Piece&, std::span<const std::byte>)>& use);
/// Calls `fill` with memory for each piece, which it writes. Returns when the state has the values.
void write_state(std::span<const NamedBuffer> state, Staging* staging,
                 const std::function<void(const Piece&, std::span<std::byte>)>& fill);

[[nodiscard]] bool has_device_memory(std::span<const NamedBuffer> state);
/// Returns the bytes of the largest tensor in device memory; 0 without one.
[[nodiscard]] std::size_t max_device_bytes(std::span<const NamedBuffer> state);

/// A copy of a state's values in host memory.
class HostCopy {
public:
    /// Throws Error{System} when there is no room.
    HostCopy(std::span<const NamedBuffer> state, Staging* staging);
    /// Returns the state with the same names, in this copy's memory.
    [[nodiscard]] std::span<const NamedBuffer> state() const { return state_; }

private:
    std::unique_ptr<std::byte[]> memory_;
    std::vector<NamedBuffer> state_;
};

}  // namespace ddp::detail
