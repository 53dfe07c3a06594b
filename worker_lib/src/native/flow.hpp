#pragma once
// Flow: one peer's part in an exchange: the message to it that is being sent and the one from it that is being
// received, each a header, then the payload, then behind a long one a seal, as far as the sockets take and give without
// waiting. What the messages mean, and what becomes of errors, is the business of Links.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/clock.hpp"
#include "common/unique_fd.hpp"
#include "worker_lib/src/native/signature.hpp"
#include "worker_lib/src/native/stream.hpp"
#include "worker_lib/src/native/stripes.hpp"

namespace ddp::detail {

/// The connection to a peer.
struct Link {
    ddprun::UniqueFd socket;
    std::vector<ddprun::UniqueFd> more;  ///< beside it, for the rest of large messages
    std::string name;                    ///< for errors: "rank 3 (host b, pid 71, 10.0.0.3)"
    bool sending_broken = false;         ///< a message was cut off: nothing sensible can follow
    ddprun::Duration lag{};              ///< so long after us its first word of this operation came
    bool heard = false;                  ///< in this operation

    [[nodiscard]] std::size_t sockets() const { return 1 + more.size(); }
    [[nodiscard]] int fd(std::size_t number) const { return (number == 0 ? socket : more[number - 1]).get(); }
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

/// Behind every payload of more than kMostUnsealed bytes: whether the sender vouches for it. If not, its last words
/// follow.
enum class Seal : std::uint8_t { kGood = 1, kBroken = 2 };
/// Up to so much of a neighbour's memory is copied before it is sent, which costs less than a seal that comes by
/// itself.
inline constexpr std::size_t kMostUnsealed = 16u << 10;
constexpr std::size_t seal_bytes(std::size_t payload_bytes) { return payload_bytes > kMostUnsealed ? sizeof(Seal) : 0; }

/// Of one message in one go, in bytes: then it is the other sockets' turn, and time to look around.
inline constexpr std::size_t kTurnBytes = 1u << 20;

struct Flow {
    int rank = 0;
    Link* link = nullptr;

    bool sending = false;  ///< a message is in hand; it may be sent already
    MessageHeader out_header;
    std::span<const std::byte> out;
    Progress sent;
    Seal out_seal = Seal::kGood;
    bool unsealed = false;            ///< seal() is still to come
    std::vector<std::byte> own_copy;  ///< of a small message from a neighbour's memory
    bool out_depends = false;         ///< as in OutMessage; of a stream, it knows that itself

    bool receiving = false;  ///< the same
    std::uint32_t in_step = 0;
    MessageHeader in_header;
    std::span<std::byte> in;
    Progress received;
    Seal in_seal = Seal::kGood;
    bool in_depends = false;
    std::uint64_t messages_in = 0;  ///< that have come whole

    /// From a neighbour's memory: only what has been read of it until this returns, or the last byte has been sent and
    /// `unsealed` is left, may be good. Then look whether it is.
    void send(std::uint32_t step, std::span<const std::byte> bytes, Owner owner = Owner::kSelf);
    void seal(Seal seal);
    void receive(std::uint32_t step, std::span<std::byte> bytes);

    [[nodiscard]] bool sent_all() const { return !sending || (sent.finished() && !unsealed); }
    [[nodiscard]] bool sent_all(std::size_t socket) const { return !sending || sent.finished(socket); }
    [[nodiscard]] bool received_all() const { return !receiving || received.finished(); }
    /// Whether a socket is to be read. The first one alone, before the header has come and fits.
    [[nodiscard]] bool expects(std::size_t socket) const {
        return receiving && !received.finished(socket) && (socket == 0 || received.has_header());
    }
    /// In the midst of a message on the first socket, so that no other can follow there.
    [[nodiscard]] bool cut_off() const { return sent.done(0) > 0 && !sent_all(0); }

    /// Sends what the sockets take, or one of them. When one fails, the link is broken for sending: what the peer sent
    /// before it ended may tell why.
    void send_more();
    void send_more(std::size_t socket);
    /// One recvmsg into header and payload: bytes, 0 at the end of the stream, or -1 with errno.
    [[nodiscard]] ssize_t receive_more(std::size_t socket);
};

}  // namespace ddp::detail
