#pragma once
// Peer: runs the message protocol between this rank and one other, in both directions. The other one may be this rank
// itself. It follows the rules of FrameKind and moves bytes without waiting. Peers owns it.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "worker_lib/src/native/p2p/eager_window.hpp"
#include "worker_lib/src/native/p2p/frame_reader.hpp"
#include "worker_lib/src/native/p2p/matching.hpp"
#include "worker_lib/src/native/p2p/outbox.hpp"
#include "worker_lib/src/native/p2p/peer_memory.hpp"
#include "worker_lib/src/native/p2p/running.hpp"
#include "worker_lib/src/native/p2p/setup.hpp"
#include "worker_lib/src/native/protocol/channel.hpp"

namespace ddp::detail::p2p {

class Peer {
public:
    Peer(OwnRank& own, int rank, PeerMemory memory, std::unique_ptr<ByteSink> sink, std::unique_ptr<ByteSource> source);

    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] bool is_remote() const { return memory_.kind == PeerMemory::Kind::kNone; }
    [[nodiscard]] Outbox& outbox() REQUIRES(kRunning) { return outbox_; }
    [[nodiscard]] Matching& matching() REQUIRES(kRunning) { return matching_; }

    /// Queues a send or receive. Throws Error{Mismatch} naming both sides.
    void post(PendingTransfer pending) REQUIRES(kRunning);
    struct Progress {
        bool moved = false;
        bool peer_concerned = false;  ///< there is something for the peer to look at
    };
    /// Moves as much as can be moved now, about kMaxPerPass in each direction. Throws Error{Mismatch}, and
    /// Error{System} for a peer that breaks the protocol.
    [[nodiscard]] Progress progress() REQUIRES(kRunning);

    /// Sends a small message if it can go as a whole now and no frame is before it. Never fails: if it returns false,
    /// post() has to follow.
    [[nodiscard]] bool send_immediately(const TransferList& batch, const Transfer& transfer) noexcept
        REQUIRES(kRunning);
    /// kOther: there is something else to do first, or the message does not fit: post() has to follow.
    enum class Look : std::uint8_t { kNothing, kTaken, kOther };
    /// Receives the message if it is the next frame of the stream and complete. Precondition: no receive is posted.
    /// kNothing: it has not arrived completely yet.
    [[nodiscard]] Look receive_immediately(const Transfer& transfer) noexcept REQUIRES(kRunning);
    /// Returns once whether reading made room for a peer that waits for it.
    [[nodiscard]] bool has_made_room() REQUIRES(kRunning) { return reader_.has_made_room(); }

    /// Asks the peer for its PostPage::listening, unless the last answer is still due.
    void ask() REQUIRES(kRunning);
    /// Returns the peer's last answer.
    [[nodiscard]] std::uint64_t listening() const REQUIRES(kRunning) { return listening_; }
    /// Returns the reason in the peer's kFinalReport, if it has left.
    [[nodiscard]] const std::optional<Failure>& departure() const REQUIRES(kRunning) { return departure_; }
    /// Drops all work. The program may free its buffers from now on, so no progress() may follow.
    void clear() REQUIRES(kRunning);

private:
    /// A message that this rank writes to, or reads from, the peer's memory; then the peer gets `frame`.
    struct Copy {
        std::byte* to = nullptr;
        const std::byte* from = nullptr;
        std::size_t bytes = 0;
        Frame frame;
        PendingTransfer pending;
    };

    void start_send(PendingTransfer pending);
    void start_receive(PendingTransfer pending);
    void meet_offer(const Frame& frame, PendingTransfer pending);
    void count_received(std::size_t bytes);
    [[nodiscard]] bool pull();
    void begin_frame();
    void end_frame(const Frame& frame);
    void end_message(const Frame& frame);
    void continue_offered(const Frame& accept);
    [[nodiscard]] bool copy();
    void finish(PendingTransfer pending) { own_.finished.push_back(std::move(pending)); }
    [[nodiscard]] PendingTransfer take(std::map<std::uint64_t, PendingTransfer>& from, std::uint64_t id) const;
    [[nodiscard]] std::byte* memory_at(std::uint64_t address, std::size_t bytes) const;
    [[noreturn]] void refuse(const char* why) const;

    OwnRank& own_;
    const int rank_;
    const PeerMemory memory_;
    FrameReader reader_;
    Outbox outbox_;
    Matching matching_;
    EagerWindow window_;
    std::uint64_t next_id_ = 1;
    std::map<std::uint64_t, PendingTransfer> offered_;   ///< sends, by id
    std::map<std::uint64_t, PendingTransfer> accepted_;  ///< receives, by the id of the peer's message
    std::deque<Copy> copies_;
    std::optional<Failure> departure_;
    bool asked_ = false;
    std::uint64_t listening_ = 0;
};

}  // namespace ddp::detail::p2p
