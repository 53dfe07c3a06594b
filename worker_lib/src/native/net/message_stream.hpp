#pragma once
// MessageStream: the messages of an operation. Some become possible only when others have arrived, so Links asks for
// them one by one. The order of the messages from one rank to another is fixed and known to both; nothing else is,
// so that all connections are busy whenever they can be.

#include <cstddef>
#include <cstdint>
#include <span>

namespace ddp::detail {

/// The rank whose memory a message is sent from. A neighbour's program may get its buffer back, and write to it, as
/// soon as that rank gives up: Links looks for that after sending, and only then marks the message as valid.
enum class Owner : std::uint8_t { kSelf, kNeighbour };

/// Whether a message can be sent or received now.
enum class Readiness : std::uint8_t {
    kNow,
    kLater,  ///< ask again when another message has been sent or received; there will be at least one
    kNever,  ///< there are no more
};

/// The next message to a peer, if it is ready.
struct NextOut {
    Readiness readiness = Readiness::kNever;
    std::uint32_t step = 0;
    std::span<const std::byte> bytes;
    Owner owner = Owner::kSelf;
};
/// The next message from a peer, with the memory for it.
struct NextIn {
    Readiness readiness = Readiness::kNever;
    std::uint32_t step = 0;
    std::span<std::byte> bytes;
};

class MessageStream {
public:
    virtual ~MessageStream() = default;
    /// Return the next message to, and from, peer number `peer`. Called again when the last one is done, and after
    /// kLater.
    [[nodiscard]] virtual NextOut next_out(std::size_t peer) = 0;
    [[nodiscard]] virtual NextIn next_in(std::size_t peer) = 0;
    /// Note that the message returned last is done: its memory is free, or holds the received data.
    virtual void sent(std::size_t peer) = 0;
    virtual void received(std::size_t peer) = 0;
    /// Return whether a peer that does not receive the current message, or send the expected one, may itself wait for
    /// messages of a third rank: then it need not be the culprit.
    [[nodiscard]] virtual bool out_depends(std::size_t /*peer*/) const { return false; }
    [[nodiscard]] virtual bool in_depends(std::size_t /*peer*/) const { return false; }
    /// Returns whether the exchange is to return now; go_on() continues it.
    [[nodiscard]] virtual bool stops() const { return false; }
};

}  // namespace ddp::detail
