#pragma once
// Meetings: the first step of every operation inside a node. Each rank announces its operation and the offsets of its
// buffers. When all have announced the same operation, they may read and write each other's memory. Used by the thread
// that runs the group's operations.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "worker_lib/src/native/node/peer_wait.hpp"
#include "worker_lib/src/native/protocol/signature.hpp"

namespace ddp::detail {

/// Which buffer of a rank: the one that it gives, or the one for the result. In place they are the same.
enum class Side : std::uint8_t { kInput, kOutput };

class Meetings {
public:
    Meetings(const NodeRanks& ranks, NodeProgress& progress, const NodeFailure& failure, const PeerWait& wait)
        : ranks_(ranks), progress_(progress), failure_(failure), wait_(wait) {}

    /// Announces an operation, the offsets of its buffers, and up to kInlineBytes of `data`. Waits only for a peer that
    /// is kAhead meetings behind. Throws as PeerWait::until_all().
    void open(const Operation& operation, const BufferOffsets& offsets, std::span<const std::byte> data = {});
    /// Does the same unless it would have to wait. Returns false if nothing has been announced.
    [[nodiscard]] bool try_open(const Operation& operation, const BufferOffsets& offsets,
                                std::span<const std::byte> data);
    /// Waits until all ranks of the node have opened the operation, and compares their calls. Their announcements are
    /// valid here until Node::done(). Throws Mismatch naming both sides, and as PeerWait::until_all().
    void join(const Operation& operation);
    /// Joins the only meeting that is opened and not joined. Returns false, and changes nothing, if a rank stays away
    /// for longer than a moment or has made another call. Afterwards, and after NodeProgress::begin(), call
    /// take_earliest_deadline().
    [[nodiscard]] bool try_join();
    /// Lowers the deadline of the operation to the earliest one that a rank has announced.
    void take_earliest_deadline();
    void meet(const Operation& operation, const BufferOffsets& offsets) {
        open(operation, offsets);
        join(operation);
    }
    /// Publishes that the own rank has finished reading the announcements of the meeting that it joined last.
    void close() const { ranks_.own().through.store(joined_, std::memory_order_release); }
    /// Returns the number of that meeting.
    [[nodiscard]] std::uint64_t joined() const { return joined_; }

    // The announcement of the rank at `index` in that meeting:

    [[nodiscard]] const std::byte* data(int index) const { return meeting(index).data.data(); }
    /// Returns whether a buffer lies outside the rank's heap, so that it passes through its staging slot.
    [[nodiscard]] bool is_foreign(int index, Side side) const {
        return offset_of(index, side) == BufferOffsets::kForeign;
    }
    [[nodiscard]] bool any_foreign(Side side) const;
    /// Returns a buffer in the rank's heap. Not for foreign ones.
    [[nodiscard]] std::byte* buffer(int index, Side side) const { return ranks_.heap(index) + offset_of(index, side); }
    /// Returns whether all ranks copy to their slots past the caches.
    [[nodiscard]] bool streams() const { return announced(0).offsets.streams; }

private:
    [[nodiscard]] const Meeting& meeting(int index) const { return ranks_.control(index).meetings[joined_ % kAhead]; }
    [[nodiscard]] const Announcement& announced(int index) const { return meeting(index).announcement; }
    [[nodiscard]] std::uint64_t offset_of(int index, Side side) const {
        const BufferOffsets& offsets = announced(index).offsets;
        return side == Side::kInput ? offsets.input : offsets.output;
    }
    [[nodiscard]] bool has_room(int index) const;
    [[nodiscard]] bool all_have_room();
    [[nodiscard]] bool has_opened(int index, std::uint64_t number) const;
    void announce(const Operation& operation, const BufferOffsets& offsets, std::span<const std::byte> data);
    void compare(const Operation& operation) const;
    [[nodiscard]] std::vector<int> minority() const;

    const NodeRanks& ranks_;
    NodeProgress& progress_;
    const NodeFailure& failure_;
    const PeerWait& wait_;
    std::uint64_t opened_ = 0;     ///< number of the last meeting that this rank has opened
    Identity opened_identity_;     ///< announced there
    std::uint64_t joined_ = 0;     ///< number of the last meeting that this rank has joined
    std::uint64_t room_ = kAhead;  ///< up to this number all peers are known to have room for a meeting
};

}  // namespace ddp::detail
