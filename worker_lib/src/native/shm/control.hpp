#pragma once
// Control: the first pages of a rank's segment, through which the ranks of a node communicate. They contain no locks,
// only atomics and plain data, so a rank that dies leaves nothing locked. The comment of each word names its writer.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "common/clock.hpp"
#include "worker_lib/src/group/departure.hpp"
#include "worker_lib/src/native/protocol/failure_note.hpp"
#include "worker_lib/src/native/protocol/signature.hpp"
#include "worker_lib/src/native/shm/cores.hpp"

namespace ddp::detail {

/// Words that different ranks write lie in different pairs of cache lines, because the prefetcher fetches pairs.
inline constexpr std::size_t kSeparation = 128;

/// The offsets of a rank's buffers in its heap.
struct BufferOffsets {
    static constexpr std::uint64_t kForeign = ~std::uint64_t{0};  ///< outside it: passes through the staging slot
    static constexpr std::uint64_t kNone = kForeign - 1;          ///< the rank gives, or gets, nothing
    std::uint64_t input = kNone;
    std::uint64_t output = kNone;
    /// Whether data is copied to staging slots past the caches. The value of the node's first rank counts for all.
    bool streams = false;
};

/// The description of a rank's current operation for its peers.
struct Announcement {
    BufferOffsets offsets;
    Label label{};
    ddprun::TimePoint deadline;  ///< monotonic clock of this machine, which its processes share
};

/// Maximum number of meetings that a rank may have opened and a peer has not finished.
inline constexpr std::size_t kAhead = 4;
/// Maximum data of an announcement, and with it of a one-shot operation.
inline constexpr std::size_t kInlineBytes = 8u << 10;

/// A rank's announcement of one operation. For an operation on a number or two, all that peers read lies in one cache
/// line. The fields that only large operations and errors need lie before it.
struct Meeting {
    static constexpr std::size_t kBesideNumber = 16;  ///< bytes of `data` in that line
    alignas(kSeparation) Announcement announcement;
    /// The number of the owner's meeting that lies here. Storing it makes the rest visible to peers.
    alignas(64) std::atomic<std::uint64_t> number{0};
    Identity identity;
    std::uint64_t through = 0;  ///< copy of Control::through, which a reader of this line need not load
    alignas(16) std::array<std::byte, kInlineBytes> data;
};

/// Value of Control::valid_through without a failure.
inline constexpr std::uint64_t kAllValid = ~std::uint64_t{0};

/// The control page of one rank. It has many members because it is the layout of memory that peers read, and the
/// position of each word is chosen for speed.
struct Control {
    /// Number of the last meeting whose announcements this rank has finished reading. Owner writes.
    alignas(kSeparation) std::atomic<std::uint64_t> through{0};
    /// Number of barriers at which this rank has arrived. Owner writes.
    alignas(kSeparation) std::atomic<std::uint64_t> arrived{0};
    /// Other than kPresent after the owner has left the group. Owner writes.
    std::atomic<Departure> left{Departure::kPresent};
    /// SharedWork: of the owner's share, how many parts are claimed and how many are done, each with the number of the
    /// meeting. Any peer writes.
    alignas(kSeparation) std::atomic<std::uint64_t> claimed{0};
    std::atomic<std::uint64_t> finished{0};
    /// SharedWork: the meeting in which the owner works on claimed parts; 0: none. Owner writes.
    alignas(kSeparation) std::atomic<std::uint64_t> working{0};
    /// Numbers of the operation that the owner has begun, and of the last one that it has completed. Owner writes.
    alignas(kSeparation) std::atomic<std::uint64_t> begun{0};
    std::atomic<std::uint64_t> done{0};
    /// Incremented repeatedly while the owner waits for messages from other nodes, or in a send or receive; see
    /// deadlines.hpp. Owner writes.
    std::atomic<std::uint64_t> listening{0};
    /// 1 while the owner sleeps on `wake` or is about to, and has to be woken after a change that it waits for. Owner
    /// writes.
    alignas(kSeparation) std::atomic<std::uint32_t> asleep{0};
    /// Futex word, incremented to wake the owner. Any peer writes.
    std::atomic<std::uint32_t> wake{0};
    /// 1 + the core on which the owner opened its last operation, if ranks share cores; 0: unknown. Owner writes,
    /// and only if it changes.
    std::atomic<std::uint32_t> core{0};
    /// Whether peers may execute fences in the owner's threads (membarrier). Owner writes, before peers see this page.
    bool allows_remote_fences = false;
    /// 0, or 1 + local index of the rank whose `failure` is the reason why the group is unusable. Any peer writes, the
    /// first wins.
    alignas(kSeparation) std::atomic<std::uint32_t> poisoned_by{0};
    /// Number of the last operation that may still complete. Any peer writes, after the word above, and only lowers it.
    std::atomic<std::uint64_t> valid_through{kAllValid};
    /// Indexed by the number of the meeting, modulo kAhead. Owner writes.
    std::array<Meeting, kAhead> meetings;
    /// Written once by the owner, before it sets any poisoned_by.
    FailureNote failure;
    /// Cores on which the owner may run. Owner writes, before peers see this page.
    CoreSet cores{};
};
static_assert(offsetof(Meeting, data) + Meeting::kBesideNumber <= offsetof(Meeting, number) + 64);
// Peers of another build read this memory: a change of the layout needs a new kProtocolVersion.
static_assert(sizeof(Announcement) == 56 && sizeof(Meeting) == 8320 && offsetof(Control, meetings) == 896);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace ddp::detail
