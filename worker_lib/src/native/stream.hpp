#pragma once
// Stream: what an operation sends and receives when that is many messages, some of which become possible only when
// others have come. Links asks for them one by one. The messages from one rank to another come in an order on which
// both agree; nothing else is fixed, so that all connections are busy whenever they can be.

#include <cstddef>
#include <cstdint>
#include <span>

namespace ddp::detail {

/// Whose memory a message is sent from. A neighbour's program may have its buffer back, and write to it, as soon as
/// that rank gives up: who sends from there looks for that, and vouches for the message only then.
enum class Owner : std::uint8_t { kSelf, kNeighbour };

enum class Turn : std::uint8_t {
    kNow,
    kLater,  ///< when another message has been sent or has come; there will be at least one
    kNever,  ///< that was all
};

struct NextOut {
    Turn turn = Turn::kNever;
    std::uint32_t step = 0;
    std::span<const std::byte> bytes;
    Owner owner = Owner::kSelf;
};
struct NextIn {
    Turn turn = Turn::kNever;
    std::uint32_t step = 0;
    std::span<std::byte> bytes;
};

class Stream {
public:
    virtual ~Stream() = default;
    /// The next message to, and from, peer number `peer`. Asked for again when the last one is done, and after kLater.
    [[nodiscard]] virtual NextOut next_out(std::size_t peer) = 0;
    [[nodiscard]] virtual NextIn next_in(std::size_t peer) = 0;
    /// The one that was given last is done: its memory is free, or holds what has come.
    virtual void sent(std::size_t peer) = 0;
    virtual void received(std::size_t peer) = 0;
    /// Whether a peer that does not receive the message in hand, or send the one that is expected, may itself wait for
    /// messages of a third: it need not be the culprit.
    [[nodiscard]] virtual bool out_depends(std::size_t /*peer*/) const { return false; }
    [[nodiscard]] virtual bool in_depends(std::size_t /*peer*/) const { return false; }
    /// Whether the exchange is to return now, to be gone on with later.
    [[nodiscard]] virtual bool stops() const { return false; }
};

}  // namespace ddp::detail
