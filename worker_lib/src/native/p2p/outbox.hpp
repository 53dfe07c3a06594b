#pragma once
// Outbox: the frames that wait to be written to one peer, in order, and the stream that takes them. A Peer owns it,
// which P2p's lock guards.

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "worker_lib/src/native/p2p/setup.hpp"
#include "worker_lib/src/native/protocol/channel.hpp"
#include "worker_lib/src/native/protocol/failure_note.hpp"

namespace ddp::detail::p2p {

/// Bytes that one pass moves in each direction of a peer, before its caller looks at anything else.
inline constexpr std::size_t kMaxPerPass = std::size_t{1} << 20;

class Outbox {
public:
    Outbox(OwnRank& own, std::unique_ptr<ByteSink> sink) : own_(own), sink_(std::move(sink)) {}

    [[nodiscard]] bool empty() const { return queue_.empty(); }
    /// Returns whether a kTaken or kPlaced frame is queued. Its transfer is done on this rank, but the peer learns of
    /// that only from the frame, so the connection must not be closed before.
    [[nodiscard]] bool owes_reply() const;

    /// Queues a frame.
    /// pending   the transfer that is done when the frame is written
    void add(const Frame& frame, std::span<const std::byte> payload = {},
             std::optional<PendingTransfer> pending = std::nullopt);
    /// Returns whether push_now() may be called for a payload of so many bytes: no frame waits, and there is room.
    [[nodiscard]] bool can_push_now(std::size_t bytes) const {
        return queue_.empty() && sink_->has_room(sizeof(Frame) + bytes);
    }
    /// Writes a whole frame past the queue.
    void push_now(const Frame& frame, std::span<const std::byte> payload) {
        (void)sink_->push(std::as_bytes(std::span(&frame, 1)), payload);
    }
    /// Writes as much as there is room for, about kMaxPerPass. Returns whether it wrote anything.
    [[nodiscard]] bool push();
    /// Drops every frame that has not begun. Writes the rest of the one that has, then the final report with `why`, as
    /// far as there is room; does not wait. Does nothing if clear() has cut a frame off.
    /// failed   the group has failed; else this rank leaves it
    void report_end(const FailureNote& why, bool failed);
    /// Drops all frames, also one that is partly written: after that no frame can follow.
    void clear();

private:
    struct Outgoing {
        Frame frame;
        std::span<const std::byte> payload;
        std::optional<PendingTransfer> pending;
        std::size_t written = 0;
    };

    OwnRank& own_;
    const std::unique_ptr<ByteSink> sink_;
    std::deque<Outgoing> queue_;
    FailureNote final_report_;
    bool cut_off_ = false;  ///< the peer has part of a frame whose rest was dropped: no frame can follow
};

}  // namespace ddp::detail::p2p
