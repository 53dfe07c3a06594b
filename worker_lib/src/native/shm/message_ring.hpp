#pragma once
// Lane: a one-way stream of bytes from one rank to a neighbour, a ring in the sender's segment. Each end has one user
// at a time; neither ever waits. PostPage: what a rank says to all neighbours about its sends and receives.
//
// What is written is published by a release of `written`, what is taken by one of `read`; neither end waits until that
// has reached the other. Whether the other one sleeps is looked at behind fence_before_wake(), see waiter.hpp and
// P2p::settle().

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "worker_lib/src/native/control.hpp"
#include "worker_lib/src/native/p2p_bell.hpp"
#include "worker_lib/src/native/p2p_channel.hpp"
#include "worker_lib/src/native/waiter.hpp"

namespace ddp::detail {

/// At the beginning of a segment's post area. Owner writes, but for the end of a sleep.
struct PostPage {
    /// 1: the owner sleeps, or is about to, and waits for something: whoever sends to it must ring. Rings set it to 0.
    alignas(kSeparation) std::atomic<std::uint32_t> asleep{0};
    /// The name of the owner's Bell, from before its first sleep.
    std::array<char, Bell::kNameBytes> bell{};
    /// Counted up again and again while the owner waits, for sends, receives or in a collective; see deadlines.hpp.
    alignas(kSeparation) std::atomic<std::uint64_t> listening{0};
};

struct LaneControl {
    /// Bytes, since the beginning. The sender writes `written`, the receiver `read`.
    alignas(kSeparation) std::atomic<std::uint64_t> written{0};
    alignas(kSeparation) std::atomic<std::uint64_t> read{0};
    /// The sender waits for room. Both write.
    std::atomic<std::uint32_t> starved{0};
};

/// A ring in memory that both ends see. Zeroed memory is an empty lane.
struct LaneMemory {
    LaneControl* control = nullptr;
    std::byte* bytes = nullptr;
    std::size_t capacity = 0;  ///< a power of two
};

/// The part of a post area of `area_bytes` that is the lane to the neighbour with local index `to`, of `ranks`.
[[nodiscard]] LaneMemory lane_at(std::byte* area, std::size_t area_bytes, int ranks, int to);

class LaneOutlet final : public Outlet {
public:
    explicit LaneOutlet(LaneMemory memory) : memory_(memory) {}
    [[nodiscard]] std::size_t push(std::span<const std::byte> head, std::span<const std::byte> body) override;
    [[nodiscard]] bool has_room(std::size_t bytes) override;

private:
    [[nodiscard]] std::size_t room(std::size_t wanted);
    void store(std::uint64_t position, std::span<const std::byte> bytes) const;

    const LaneMemory memory_;
    std::uint64_t written_ = 0;
    std::uint64_t read_ = 0;  ///< as last seen
};

class LaneInlet final : public Inlet {
public:
    LaneInlet(LaneMemory memory, WakerFence fence) : memory_(memory), fence_(fence) {}
    [[nodiscard]] std::size_t pull(std::span<std::byte> bytes) override;
    [[nodiscard]] std::size_t look(std::span<std::byte> bytes) override;
    void take(std::size_t skipped, std::span<std::byte> bytes) override;
    [[nodiscard]] bool has_made_room() override;

private:
    void load(std::uint64_t position, std::span<std::byte> bytes) const;

    const LaneMemory memory_;
    const WakerFence fence_;     ///< of has_made_room()
    std::uint64_t written_ = 0;  ///< as last seen
    std::uint64_t read_ = 0;
    bool pulled_ = false;
};

}  // namespace ddp::detail
