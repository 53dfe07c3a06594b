#pragma once
// The two ends of a one-way stream of bytes between two ranks: through shared memory (p2p_lane.hpp) or a connection
// (p2p_network.hpp). And what travels in it: frames, each followed by `bytes` of payload.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "ddp/types.hpp"

namespace ddp::detail {

class Outlet {
public:
    virtual ~Outlet() = default;
    /// Takes as much of `head`, then of `body`, as there is room for now; how many bytes that was.
    [[nodiscard]] virtual std::size_t push(std::span<const std::byte> head, std::span<const std::byte> body) = 0;
    /// Whether push() would take so many bytes now. False also where that is not known.
    [[nodiscard]] virtual bool has_room(std::size_t /*bytes*/) { return false; }
};

class Inlet {
public:
    virtual ~Inlet() = default;
    /// Fills as much of `bytes` as has come; how many that was.
    [[nodiscard]] virtual std::size_t pull(std::span<std::byte> bytes) = 0;
    /// The first of what has come, left where it is, fills `bytes`; how much has come. 0: less, or that is not known.
    [[nodiscard]] virtual std::size_t look(std::span<std::byte> /*bytes*/) { return 0; }
    /// Takes `skipped` bytes and those that fill `bytes`. They have come: look() has said so.
    virtual void take(std::size_t /*skipped*/, std::span<std::byte> /*bytes*/) {}
    /// Whether the sender was out of room and has some now: it may sleep, and must be told. True once.
    [[nodiscard]] virtual bool has_made_room() { return false; }
};

/// A message is sent at once (kMessage), or offered; the receiver of an offer copies it itself (kTaken), or accepts it:
/// then the sender writes it to a place in the receiver's memory (kPlaced), or sends it (kData).
enum class FrameKind : std::uint8_t {
    kMessage,  ///< sender: payload, id
    kOffer,    ///< sender: id; place: in its heap, or kNowhere
    kAccept,   ///< receiver: id; place: in its heap, or kNowhere
    kTaken,    ///< receiver: id
    kPlaced,   ///< sender: id
    kData,     ///< sender: payload, id
    kCredit,   ///< receiver: it has taken `count` of the bytes that the sender counts against its window
    kAsk,      ///< between nodes: does the peer wait itself? Inside one its memory says so
    kAnswer,   ///< count: how often it has said so, see PostPage::listening
    kGoodbye,  ///< payload: a FailureNote, why nothing follows; count: 1 if the group has failed, 0 if the sender
               ///< leaves
};

struct Frame {
    static constexpr std::uint32_t kMagic = 0x64647072;  // "ddpr"
    static constexpr std::uint64_t kNowhere = ~std::uint64_t{0};

    std::uint32_t magic = kMagic;
    FrameKind kind = FrameKind::kMessage;
    DType dtype = DType::u8;
    std::uint16_t unused = 0;
    std::int32_t tag = 0;
    std::int32_t unused_too = 0;
    std::uint64_t id = 0;  ///< of the message, among those of its sender to its receiver
    std::uint64_t seq = 0;
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;  ///< of payload
    std::uint64_t place = kNowhere;
    std::array<char, 24> name{};  ///< OpOptions::tag, cut
};
static_assert(std::is_trivially_copyable_v<Frame> && sizeof(Frame) == 80);

}  // namespace ddp::detail
