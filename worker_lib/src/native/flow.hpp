#pragma once
// Flow: one connection's part in an exchange: the message to the peer that is being sent and the one from it that is
// being received, each a header and then the payload, as far as the socket takes and gives without waiting. What the
// messages mean, and what becomes of errors, is the business of Links.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "common/unique_fd.hpp"
#include "worker_lib/src/native/signature.hpp"

namespace ddp::detail {

struct Link {
    ddprun::UniqueFd socket;
    std::string name;             ///< for errors: "rank 3 (host b, pid 71, 10.0.0.3)"
    bool sending_broken = false;  ///< a message was cut off: nothing sensible can follow
};

/// Before every message.
struct MessageHeader {
    static constexpr std::uint32_t kMagic = 0x64647031;             // "ddp1"
    static constexpr std::uint32_t kLastWords = ~std::uint32_t{0};  ///< as `step`: a FailureNote follows, then nothing

    std::uint32_t magic = kMagic;
    std::uint32_t step = 0;  ///< which exchange of the operation
    std::int64_t generation = 0;
    std::uint64_t payload_bytes = 0;
    Signature signature;
};
static_assert(sizeof(MessageHeader) == 80);

struct Flow {
    int rank = 0;
    Link* link = nullptr;

    bool sending = false;  ///< a message is in hand; it may be sent already
    MessageHeader out_header;
    std::span<const std::byte> out;
    std::size_t sent = 0;

    bool receiving = false;  ///< the same
    std::uint32_t in_step = 0;
    MessageHeader in_header;
    std::span<std::byte> in;
    std::size_t received = 0;
    std::uint64_t messages_in = 0;  ///< that have come whole

    void send(std::uint32_t step, std::span<const std::byte> bytes);
    void receive(std::uint32_t step, std::span<std::byte> bytes);

    [[nodiscard]] bool sent_all() const { return !sending || sent == sizeof(MessageHeader) + out.size(); }
    [[nodiscard]] bool received_all() const { return !receiving || received == sizeof(MessageHeader) + in.size(); }
    [[nodiscard]] bool cut_off() const { return sent > 0 && !sent_all(); }
    [[nodiscard]] bool has_header() const { return received >= sizeof(MessageHeader); }

    /// Sends what the socket takes. When it fails, the link is broken for sending: what the peer sent before it ended
    /// may tell why.
    void send_more();
    /// One recvmsg into header and payload: bytes, 0 at the end of the stream, or -1 with errno.
    [[nodiscard]] ssize_t receive_more();
};

}  // namespace ddp::detail
