#pragma once
// ByteSink, ByteSource: the two ends of a one-way stream of bytes between two ranks, through shared memory
// (shm/message_ring.hpp) or a connection (p2p/network.hpp). Frame: the header of each message in it, followed by
// `bytes` of payload. Each end has one user at a time, and never waits.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "ddp/types.hpp"

namespace ddp::detail {

/// The sender's end.
class ByteSink {
public:
    virtual ~ByteSink() = default;
    /// Takes as much of `head`, then of `body`, as there is room for now. Returns the number of bytes taken.
    [[nodiscard]] virtual std::size_t push(std::span<const std::byte> head, std::span<const std::byte> body) = 0;
    /// Returns whether push() would take `bytes` bytes now; false if that is not known.
    [[nodiscard]] virtual bool has_room(std::size_t /*bytes*/) { return false; }
};

/// The receiver's end.
class ByteSource {
public:
    virtual ~ByteSource() = default;
    /// Fills as much of `bytes` as has arrived. Returns the number of bytes filled.
    [[nodiscard]] virtual std::size_t pull(std::span<std::byte> bytes) = 0;
    /// Fills `bytes` with the next bytes without taking them. Returns the number that have arrived; 0 if these are
    /// fewer than `bytes`, or if it is not known.
    [[nodiscard]] virtual std::size_t look(std::span<std::byte> /*bytes*/) { return 0; }
    /// Drops `skipped` bytes, and then takes `bytes`. Call it only if look() has returned as many.
    virtual void take(std::size_t /*skipped*/, std::span<std::byte> /*bytes*/) {}
    /// Returns whether the sender was out of room and has some now: it may sleep, and must be woken. True once.
    [[nodiscard]] virtual bool has_made_room() { return false; }
};

/// A message is sent eagerly (kMessage), or offered (rendezvous protocol). The receiver of an offer copies the data
/// itself (kTaken), or accepts: then the sender writes it to the receiver's heap (kPlaced), or sends it (kData).
enum class FrameKind : std::uint8_t {
    kMessage,      ///< sender: payload, id
    kOffer,        ///< sender: id; place: in its heap, or kNowhere
    kAccept,       ///< receiver: id; place: in its heap, or kNowhere
    kTaken,        ///< receiver: id
    kPlaced,       ///< sender: id
    kData,         ///< sender: payload, id
    kCredit,       ///< receiver: it has taken `count` of the bytes that the sender counts against its window
    kAsk,          ///< between nodes: asks whether the peer waits itself; inside a node its memory shows that
    kAnswer,       ///< count: value of PostPage::listening
    kFinalReport,  ///< payload: a FailureNote, the reason why nothing follows; count: 1 if the group has failed, 0 if
                   ///< the sender leaves
};

struct Frame {
    static constexpr std::uint32_t kMagic = 0x64647072;  // "ddpr"
    static constexpr std::uint64_t kNowhere = ~std::uint64_t{0};

    std::uint32_t magic = kMagic;
    FrameKind kind = FrameKind::kMessage;
    DType dtype = DType::U8;
    std::uint16_t unused = 0;
    std::int32_t tag = 0;
    std::int32_t unused_too = 0;
    std::uint64_t id = 0;  ///< of the message, among those of its sender to its receiver
    std::uint64_t seq = 0;
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;  ///< of payload
    std::uint64_t place = kNowhere;
    std::array<char, 24> name{};  ///< OpOptions::label, cut
};
static_assert(std::is_trivially_copyable_v<Frame> && sizeof(Frame) == 80);

}  // namespace ddp::detail
