#pragma once
// Flow: the messages exchanged with one peer: one that is being sent and one that is being received. Each message is
// a header, the payload, and behind a long payload a seal. A Flow moves bytes as far as the sockets take and give them
// without waiting. Links owns the flows, gives the messages a meaning, and handles errors.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/clock.hpp"
#include "common/system/unique_fd.hpp"
#include "worker_lib/src/native/net/message_stream.hpp"
#include "worker_lib/src/native/net/stripes.hpp"
#include "worker_lib/src/native/protocol/deadlines.hpp"
#include "worker_lib/src/native/protocol/signature.hpp"

namespace ddp::detail {

/// The connection to a peer.
struct Link {
    ddprun::UniqueFd socket;
    std::vector<ddprun::UniqueFd> more;  ///< further sockets, for the rest of large messages
    std::string name;                    ///< for errors: "rank 3 (host b, pid 71, 10.0.0.3)"
    int global_rank = -1;                ///< in the job
    bool sending_broken = false;         ///< a message was cut off, so no other can follow
    int error = 0;                       ///< errno of the first socket that has failed; 0: none has
    ddprun::Duration lag{};              ///< from the begin of this operation here to the peer's first message in it
    bool heard = false;                  ///< the peer has sent something in this operation
    bool reported_waiting = false;       ///< this rank has reported to the peer that it waits, since the last pause
    ddprun::TimePoint waiting;           ///< when the peer reported that it waits past its deadline for another rank

    /// Returns whether the peer has reported that it waits. After some time it has failed, or gone on.
    [[nodiscard]] bool waits(ddprun::TimePoint now) const { return now - waiting < 2 * kReporting; }
    [[nodiscard]] std::size_t sockets() const { return 1 + more.size(); }
    [[nodiscard]] int fd(std::size_t number) const { return (number == 0 ? socket : more[number - 1]).get(); }
    /// Returns whether the peer's host is silent on all sockets, and leaves data on one of them unanswered.
    [[nodiscard]] bool host_is_silent() const;
};

/// The header of every message.
struct MessageHeader {
    static constexpr std::uint32_t kMagic = 0x64647031;  // "ddp1"
    static constexpr std::uint32_t kFinalReport =
        ~std::uint32_t{0};  ///< as `step`: a FailureNote follows, then nothing
    static constexpr std::uint32_t kWaiting =
        kFinalReport - 1;  ///< as `step`: no message, the sender waits past its deadline

    std::uint32_t magic = kMagic;
    std::uint32_t step = 0;  ///< which exchange of the operation
    std::int64_t generation = 0;
    std::uint64_t payload_bytes = 0;
    Signature signature;

    [[nodiscard]] bool is_report_of_waiting() const { return magic == kMagic && step == kWaiting; }
};
static_assert(sizeof(MessageHeader) == 80);

/// Follows every payload of more than kMaxUnsealed bytes, and marks it as valid or not. After kBroken only the sender's
/// final report follows.
enum class Seal : std::uint8_t { kGood = 1, kBroken = 2 };
/// Maximum size of a payload that is copied from a neighbour's memory before it is sent, which costs less than a seal
/// that arrives separately.
inline constexpr std::size_t kMaxUnsealed = 16u << 10;
constexpr std::size_t seal_bytes(std::size_t payload_bytes) { return payload_bytes > kMaxUnsealed ? sizeof(Seal) : 0; }

/// Bytes of one message that are moved in one go, before the thread turns to the other sockets and the node.
inline constexpr std::size_t kBytesAtOnce = 1u << 20;

/// The message to a peer.
struct Outgoing {
    bool active = false;  ///< there is one; it may be sent already
    MessageHeader header;
    std::span<const std::byte> bytes;
    Progress progress;
    Seal seal = Seal::kGood;
    bool unsealed = false;            ///< Flow::seal() has still to be called
    std::vector<std::byte> own_copy;  ///< of a small message from a neighbour's memory
    bool depends = false;             ///< as in OutMessage; not used with a stream
};

/// The message from a peer.
struct Incoming {
    bool active = false;
    std::uint32_t step = 0;  ///< that the message must belong to
    MessageHeader header;
    std::span<std::byte> bytes;
    Progress progress;
    Seal seal = Seal::kGood;
    bool depends = false;
    std::uint64_t completed = 0;  ///< messages that have been received whole
};

struct Flow {
    int rank = 0;
    Link* link = nullptr;
    Outgoing out;
    Incoming in;

    /// Begins to send a message. If `owner` is a neighbour, its memory may become invalid while it is read. So check
    /// that when this returns and, if `unsealed` is set, again when the last byte has been sent, and then call seal().
    void send(std::uint32_t step, std::span<const std::byte> bytes, Owner owner = Owner::kSelf);
    void seal(Seal seal);
    /// Begins to receive a message of that step and size.
    void receive(std::uint32_t step, std::span<std::byte> bytes);
    /// Drops received headers that are only reports of waiting, and notes them in the link.
    void drop_reports();

    [[nodiscard]] bool sent_all() const { return !out.active || (out.progress.finished() && !out.unsealed); }
    [[nodiscard]] bool sent_all(std::size_t socket) const { return !out.active || out.progress.finished(socket); }
    [[nodiscard]] bool received_all() const { return !in.active || in.progress.finished(); }
    /// Returns whether a socket is to be read: only the first one, until the header has been received and checked.
    [[nodiscard]] bool expects(std::size_t socket) const {
        return in.active && !in.progress.finished(socket) && (socket == 0 || in.progress.has_header());
    }
    /// Returns whether a message on the first socket is sent in part, so that no other can follow there.
    [[nodiscard]] bool cut_off() const { return out.progress.done(0) > 0 && !sent_all(0); }

    /// Sends as much as all sockets, or one of them, take. If that fails, the link is broken for sending only:
    /// the messages that the peer sent before it ended may give the reason.
    void send_more();
    void send_more(std::size_t socket);
    /// Calls recvmsg once. Returns the number of bytes, 0 at the end of the stream, or -1 with errno.
    [[nodiscard]] ssize_t receive_more(std::size_t socket);

private:
    void drop_header();
};

}  // namespace ddp::detail
