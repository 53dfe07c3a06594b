#pragma once
// RingSink and RingSource: the two ends of a one-way stream of bytes from one rank to a neighbour, a ring buffer in the
// sender's segment (single producer, single consumer). Neither end waits. p2p::Peer uses them under P2p's lock.
// PostPage: the state of a rank's sends and receives that all neighbours see.
//
// The sender publishes bytes by a release store of `written`, the receiver frees them by one of `read`; neither waits
// until that has reached the other. Each looks whether the other one sleeps, after fence_before_wake(): see waiter.hpp
// and p2p::Sleeper.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "worker_lib/src/native/protocol/channel.hpp"
#include "worker_lib/src/native/shm/control.hpp"
#include "worker_lib/src/native/shm/doorbell.hpp"
#include "worker_lib/src/native/shm/waiter.hpp"

namespace ddp::detail {

/// The beginning of a segment's post area. Only the owner writes, except that neighbours clear `asleep`.
struct PostPage {
    /// 1: the owner sleeps, or is about to: a neighbour that has something for it clears the flag and rings.
    alignas(kSeparation) std::atomic<std::uint32_t> asleep{0};
    /// The name of the owner's doorbell, written before its first sleep.
    std::array<char, Doorbell::kNameBytes> doorbell{};
    /// Incremented again and again while the owner waits, for sends, receives or in a collective; see deadlines.hpp.
    alignas(kSeparation) std::atomic<std::uint64_t> listening{0};
};

/// The counters of a ring.
struct RingControl {
    /// Bytes since the beginning; the sender writes `written`, the receiver `read`.
    alignas(kSeparation) std::atomic<std::uint64_t> written{0};
    alignas(kSeparation) std::atomic<std::uint64_t> read{0};
    /// 1: the sender waits for room. Both write it.
    std::atomic<std::uint32_t> starved{0};
};

/// A ring in memory that both ends see. Zeroed memory is an empty ring.
struct RingMemory {
    RingControl* control = nullptr;
    std::byte* bytes = nullptr;
    std::size_t capacity = 0;  ///< a power of two
};

/// Returns the ring to the neighbour with local index `to`, of `ranks`, in a post area of `area_bytes`.
[[nodiscard]] RingMemory ring_at(std::byte* area, std::size_t area_bytes, int ranks, int to);

class RingSink final : public ByteSink {
public:
    explicit RingSink(RingMemory memory) : memory_(memory) {}
    [[nodiscard]] std::size_t push(std::span<const std::byte> head, std::span<const std::byte> body) override;
    [[nodiscard]] bool has_room(std::size_t bytes) override;

private:
    [[nodiscard]] std::size_t room(std::size_t wanted);
    void store(std::uint64_t position, std::span<const std::byte> bytes) const;

    const RingMemory memory_;
    std::uint64_t written_ = 0;
    std::uint64_t read_ = 0;  ///< as last seen
};

class RingSource final : public ByteSource {
public:
    RingSource(RingMemory memory, WakerFence fence) : memory_(memory), fence_(fence) {}
    [[nodiscard]] std::size_t pull(std::span<std::byte> bytes) override;
    [[nodiscard]] std::size_t look(std::span<std::byte> bytes) override;
    void take(std::size_t skipped, std::span<std::byte> bytes) override;
    [[nodiscard]] bool has_made_room() override;

private:
    void load(std::uint64_t position, std::span<std::byte> bytes) const;

    const RingMemory memory_;
    const WakerFence fence_;     ///< in has_made_room()
    std::uint64_t written_ = 0;  ///< as last seen
    std::uint64_t read_ = 0;
    bool pulled_ = false;
};

}  // namespace ddp::detail
