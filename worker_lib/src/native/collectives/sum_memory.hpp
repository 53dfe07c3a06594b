#pragma once
// SumMemory: assigns memory to the pieces of an all-reduce between nodes while they are in progress: to the sums of the
// own node, the sums that other nodes send, and finished parts on their way to a node. It is a ring of kDepth slots,
// one for each piece. SumStream owns it and decides when a slot is free.

#include <cstddef>
#include <span>

#include "worker_lib/src/native/collectives/all_reduce_parts.hpp"
#include "worker_lib/src/native/collectives/windows.hpp"
#include "worker_lib/src/util/partition.hpp"

namespace ddp::detail {

class SumMemory {
public:
    static constexpr std::size_t kDepth = 4;

    /// Takes its memory from the operation's scratch. `message_elements`: the maximum in a message.
    SumMemory(const AllReduceParts& parts, const Pieces& pieces, std::size_t message_elements);

    /// Returns the bytes of an accumulator.
    [[nodiscard]] std::size_t width() const { return width_; }
    /// Returns whether the sums of the own node are its only rank's input itself.
    [[nodiscard]] bool in_place() const { return in_place_; }
    /// Returns the own node's sums of piece `number`, from element `element` of the buffer on.
    [[nodiscard]] const std::byte* sums(std::size_t number, std::size_t element) const;
    /// Returns the memory for the sums of piece `number` that `node` sends; for the own node, memory to add up in.
    [[nodiscard]] std::byte* inbox(std::size_t number, std::size_t node) const;
    /// Returns the memory for finished elements of piece `number`: that of the first rank here that gets them, or, if
    /// there is none, memory beside the inboxes.
    [[nodiscard]] std::byte* result(std::size_t number, Range range) const;

private:
    const AllReduceParts& parts_;
    const Pieces pieces_;
    const std::size_t nodes_;
    const std::size_t width_;
    const bool in_place_;
    std::size_t sums_bytes_ = 0;   ///< of a slot
    std::size_t inbox_bytes_ = 0;  ///< of a node in a slot
    std::span<std::byte> sums_;
    std::span<std::byte> inbox_;
};

}  // namespace ddp::detail
