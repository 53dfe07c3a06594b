#pragma once
// P2pPeer: what a rank has under way with one peer in both directions, itself included. It matches receives with what
// has come, keeps the rules of FrameKind, and moves bytes without ever waiting. Who holds P2p's lock for running owns
// it.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "worker_lib/src/native/arena.hpp"
#include "worker_lib/src/native/failure_note.hpp"
#include "worker_lib/src/native/member.hpp"
#include "worker_lib/src/native/node.hpp"
#include "worker_lib/src/native/p2p_channel.hpp"
#include "worker_lib/src/native/p2p_work.hpp"

namespace ddp::detail {

/// What the peers of a rank have in common.
struct P2pOwner {
    int rank = 0;
    const std::vector<Member>& members;  ///< by rank
    const HeapArena& arena;
    const Node& node;
    const std::atomic<std::uint64_t>& listening;  ///< of the own PostPage
    std::vector<Pending> finished;                ///< transfers, for the owner to take
    std::optional<Error> told;                    ///< why the group has failed, as a peer has said
};

[[nodiscard]] inline std::span<std::byte> bytes_of(const Buffer& buffer) {
    return {static_cast<std::byte*>(buffer.data), buffer.bytes()};
}
/// What a message counts against the window: empty ones need room, too.
[[nodiscard]] inline std::size_t window_cost(std::size_t bytes) { return bytes + sizeof(Frame); }

/// Where a peer's buffers can be touched directly.
struct PeerMemory {
    enum class Kind : std::uint8_t { kNone, kHeap, kOwn };  ///< another node's; a neighbour's heap; all that we see
    Kind kind = Kind::kNone;
    std::byte* heap = nullptr;
    std::size_t heap_bytes = 0;
};

class P2pPeer {
public:
    P2pPeer(P2pOwner& owner, int rank, PeerMemory memory, std::unique_ptr<Outlet> outlet, std::unique_ptr<Inlet> inlet);

    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] bool is_remote() const { return memory_.kind == PeerMemory::Kind::kNone; }
    /// Something waits for room.
    [[nodiscard]] bool has_to_send() const { return !outbox_.empty(); }
    /// The same, and it ends a send or receive of the peer that has ended here.
    [[nodiscard]] bool owes_word() const;

    /// Queues a send or receive. Throws Error{Mismatch} naming both sides.
    void post(Pending pending);
    /// Sends a small message, if it can go as a whole now and nothing is before it. Never fails; then the rules of
    /// post() say what to do.
    [[nodiscard]] bool send_at_once(const TransferBatch& batch, const Transfer& transfer) noexcept;
    enum class Look : std::uint8_t { kNothing, kTaken, kOther };
    /// Receives a message, if it is the next thing to come and is here. Nothing may be posted. kOther: there is
    /// something else to do first, or what has come does not fit.
    [[nodiscard]] Look receive_at_once(const Transfer& transfer) noexcept;
    /// Whether what was received has made room for a peer that waits for that.
    [[nodiscard]] bool has_made_room() { return inlet_->has_made_room(); }
    struct Progress {
        bool moved = false;
        bool peer_concerned = false;  ///< it has something to look at
    };
    /// Moves what can be moved now, at most a few MiB. Throws Error{Mismatch}, Error{System} for a peer that does not
    /// keep the rules.
    [[nodiscard]] Progress progress();
    /// Asks the peer how often it has said that it waits, unless it owes us an answer.
    void ask();
    /// What it has answered last.
    [[nodiscard]] std::uint64_t listening() const { return listening_; }
    /// Tells the peer why nothing follows, if there is room for it now: the group has failed, or we leave.
    void say_goodbye(const FailureNote& why, bool failed);
    /// Its reason, if it has said that it leaves.
    [[nodiscard]] const std::optional<Error>& departure() const { return departure_; }
    /// What has come of the peer and nobody asks for, while a receive waits for another message of it, is written on
    /// the board when that has lasted; for who asks why.
    void note_unasked(ddprun::TimePoint now);
    /// The same in words, for errors: the first few that fit nothing that is waited for. Empty: nothing.
    [[nodiscard]] std::string unasked() const;
    /// Lets go of all buffers.
    void clear();

private:
    struct Outgoing {
        Frame frame;
        std::span<const std::byte> payload;
        std::optional<Pending> pending;  ///< done when it is out
        std::size_t pushed = 0;
    };
    /// A message that no receive waits for.
    struct Arrival {
        Frame frame;
        std::vector<std::byte> payload;
        std::optional<ddprun::TimePoint> to_note = {};  ///< then it is written on the board, unless it is asked for
        BoardTicket ticket = {};
    };
    /// A message that we write or read in the peer's memory; when done the peer gets `frame`.
    struct Copy {
        std::byte* to = nullptr;
        const std::byte* from = nullptr;
        std::size_t bytes = 0;
        Frame frame;
        Pending pending;
    };

    void start_send(Pending pending);
    void start_receive(Pending pending);
    [[nodiscard]] std::optional<Pending> take_posted(std::int32_t tag);
    void meet_offer(const Frame& frame, Pending pending);
    void compare(const Frame& frame, const Pending& pending) const;

    [[nodiscard]] bool pull();
    void begin_frame();
    void end_frame();
    void end_message();
    void accepted_by_peer(const Frame& frame);
    [[nodiscard]] Pending take(std::map<std::uint64_t, Pending>& from, std::uint64_t id) const;
    [[nodiscard]] bool copy();
    [[nodiscard]] bool push();

    void enqueue(FrameKind kind, std::uint64_t id, std::uint64_t place = Frame::kNowhere);
    void owe(std::size_t bytes);
    void finish(Pending pending) { owner_.finished.push_back(std::move(pending)); }
    [[nodiscard]] std::uint64_t place_of(const Buffer& buffer) const;
    [[nodiscard]] std::byte* memory_at(std::uint64_t place, std::size_t bytes) const;
    [[noreturn]] void refuse(const char* why) const;

    P2pOwner& owner_;
    const int rank_;
    const PeerMemory memory_;
    const std::unique_ptr<Outlet> outlet_;
    const std::unique_ptr<Inlet> inlet_;

    std::uint64_t next_id_ = 1;
    std::size_t window_used_ = 0;
    std::size_t owed_ = 0;  ///< of the peer's window, not told so far
    std::deque<Outgoing> outbox_;
    std::map<std::uint64_t, Pending> offered_;   ///< sends, by id
    std::map<std::uint64_t, Pending> accepted_;  ///< receives, by the id of the peer's message
    std::deque<Pending> posted_;                 ///< receives that nothing has come for
    std::deque<Arrival> arrived_;                ///< messages and offers that nobody has asked for
    std::deque<Copy> copies_;
    FailureNote goodbye_;
    bool cut_off_ = false;  ///< the peer has part of a frame, of which the rest is gone
    std::optional<Error> departure_;
    bool asked_ = false;
    std::uint64_t listening_ = 0;

    // The frame that is coming in.
    Frame frame_;
    std::size_t pulled_ = 0;  ///< of frame and payload
    std::span<std::byte> payload_;
    std::optional<Pending> receiver_;
    std::vector<std::byte> unclaimed_;
};

}  // namespace ddp::detail
