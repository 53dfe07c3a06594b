#pragma once
// Control: the first pages of a rank's segment, through which the ranks of a node speak. Plain shared memory and
// atomics that are free of locks; whoever dies in between leaves nothing locked. Each word says who writes it.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "common/clock.hpp"
#include "worker_lib/src/native/cores.hpp"
#include "worker_lib/src/native/departure.hpp"
#include "worker_lib/src/native/failure_note.hpp"
#include "worker_lib/src/native/signature.hpp"

namespace ddp::detail {

/// Words that different ranks write lie on pairs of cache lines of their own: the prefetcher fetches pairs.
inline constexpr std::size_t kSeparation = 128;

/// Where a rank's buffers lie in its heap.
struct Places {
    static constexpr std::uint64_t kForeign = ~std::uint64_t{0};  ///< outside it: passes through the staging slot
    static constexpr std::uint64_t kNone = kForeign - 1;          ///< the rank gives, or gets, nothing
    std::uint64_t input = kNone;
    std::uint64_t output = kNone;
    /// Whether what passes through slots is copied past the caches. What the node's first rank says counts.
    bool streams = false;
};

/// What a rank says about its current operation.
struct Announcement {
    Places places;
    Tag tag{};
    ddprun::TimePoint deadline;  ///< by the clock of this machine, which its processes share
};

/// How many meetings a rank may have opened that a peer is not through with.
inline constexpr std::size_t kAhead = 4;
/// What fits beside an announcement.
inline constexpr std::size_t kInlineBytes = 8u << 10;

/// One cache line holds all that peers look at of a small operation whose data is a number or two; what is only for
/// large ones and for errors lies before it.
struct Meeting {
    static constexpr std::size_t kBesideNumber = 16;  ///< bytes of `data` in that line
    alignas(kSeparation) Announcement announcement;
    /// Which meeting of its owner lies here: with this word it becomes visible to the peers.
    alignas(64) std::atomic<std::uint64_t> number{0};
    Identity identity;
    std::uint64_t through = 0;  ///< Control::through as it was then: who reads this need not look there
    alignas(16) std::array<std::byte, kInlineBytes> data;
};

/// As Control::spoiled_after: nothing has failed.
inline constexpr std::uint64_t kNotSpoiled = ~std::uint64_t{0};

struct Control {
    /// Meetings with whose announcements this rank is through. Owner writes.
    alignas(kSeparation) std::atomic<std::uint64_t> through{0};
    /// Barriers at which this rank has arrived. Owner writes.
    alignas(kSeparation) std::atomic<std::uint64_t> arrived{0};
    /// Not kPresent: the owner has left the group, and will arrive nowhere any more. Owner writes.
    std::atomic<Departure> left{Departure::kPresent};
    /// Of the owner's share of a meeting's work, which any rank may do: the parts that have been claimed and those that
    /// are done, each with the meeting's number (node_shares.cpp). Any peer writes.
    alignas(kSeparation) std::atomic<std::uint64_t> claimed{0};
    std::atomic<std::uint64_t> finished{0};
    /// The meeting in which the owner works on parts that it has claimed; 0: none. Owner writes.
    alignas(kSeparation) std::atomic<std::uint64_t> working{0};
    /// The number of the operation that the owner has begun, and of the last one that it has done. Owner writes.
    alignas(kSeparation) std::atomic<std::uint64_t> begun{0};
    std::atomic<std::uint64_t> done{0};
    /// Counted up again and again while the owner waits for messages from other nodes, or in a send or receive; see
    /// deadlines.hpp. Owner writes.
    std::atomic<std::uint64_t> listening{0};
    /// The owner sleeps on `wake`, or is about to: whoever changes something that it waits for must wake it. Owner
    /// writes.
    alignas(kSeparation) std::atomic<std::uint32_t> asleep{0};
    /// Futex word, counted up by those who wake the owner.
    std::atomic<std::uint32_t> wake{0};
    /// 1 + the core on which the owner opened its last operation, where ranks share cores; 0: unknown. Owner writes,
    /// and only if it changes.
    std::atomic<std::uint32_t> core{0};
    /// Whether sleepers may carry out the owner's fences. Owner writes, before peers see this page.
    bool allows_remote_fences = false;
    /// 0, or 1 + local index of the rank that made the group unusable: its `failure` says why. Any peer writes, the
    /// first wins.
    alignas(kSeparation) std::atomic<std::uint32_t> poisoned_by{0};
    /// The last operation that this failure leaves alone: later ones cannot be done any more. Any peer writes, after
    /// the word above, and only less than there was.
    std::atomic<std::uint64_t> spoiled_after{kNotSpoiled};
    /// By the meeting's number, modulo kAhead. Owner writes.
    std::array<Meeting, kAhead> meetings;
    /// Written once by the owner, before it sets any poisoned_by.
    FailureNote failure;
    /// On which the owner may run. Owner writes, before peers see this page.
    CoreSet cores{};
};
static_assert(offsetof(Meeting, data) + Meeting::kBesideNumber <= offsetof(Meeting, number) + 64);
// Peers of another build read this memory: whoever changes the layout counts up kProtocolVersion.
static_assert(sizeof(Announcement) == 56 && sizeof(Meeting) == 8320 && offsetof(Control, meetings) == 896);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace ddp::detail
