#pragma once
// Matching: pairs the messages of one peer with the receives of this rank, by tag and in order within a tag. It holds
// the two queues of every MPI: posted receives, and unexpected messages (those that no receive has asked for). A Peer
// owns it, which P2p's lock guards.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.hpp"
#include "worker_lib/src/native/p2p/setup.hpp"
#include "worker_lib/src/native/protocol/channel.hpp"

namespace ddp::detail::p2p {

class Matching {
public:
    /// A message, with its payload, or the offer of one.
    struct Arrival {
        Frame frame;
        std::vector<std::byte> payload;
        std::optional<ddprun::TimePoint> record_at = {};  ///< when it gets an entry in the flight record, if still here
        RecordEntry entry = {};
    };

    Matching(const OwnRank& own, int peer) : own_(own), peer_(peer) {}

    void add_posted(PendingTransfer receive) { posted_.push_back(std::move(receive)); }
    void add_unexpected(const Frame& frame, std::vector<std::byte> payload);
    /// Returns the first posted receive of that tag, and removes it.
    [[nodiscard]] std::optional<PendingTransfer> take_posted(std::int32_t tag);
    /// Returns the first unexpected message of that tag, and removes it.
    [[nodiscard]] std::optional<Arrival> take_unexpected(std::int32_t tag);
    /// Throws Error{Mismatch} naming both sides if a message differs from its receive in type or count.
    void compare(const Frame& frame, const PendingTransfer& receive) const;
    /// Returns whether the next message of that tag is still in the stream. Returns false also if there are so many
    /// unexpected messages that searching them each time would take long.
    [[nodiscard]] bool is_next_in_stream(std::int32_t tag) const;

    /// Gives unexpected messages an entry in the flight record when they have been here for long while a receive waits
    /// for another message of the peer: they explain why it waits.
    void record_unexpected(ddprun::TimePoint now);
    /// Names the first few unexpected messages, for errors about a receive that waits. Empty if there are none, or no
    /// receive waits.
    [[nodiscard]] std::string unexpected_text() const;
    /// Drops both queues.
    void clear();

private:
    const OwnRank& own_;
    const int peer_;
    std::deque<PendingTransfer> posted_;
    std::deque<Arrival> unexpected_;
};

}  // namespace ddp::detail::p2p
