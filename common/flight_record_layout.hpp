#pragma once
// Defines the layout of a worker's flight record: memory that its agent creates and keeps, so that the agent can read
// what the worker did after the worker was killed. FlightRecorder (worker_lib/src/recorder/) writes it, agent/recorder/
// reads it. Only Preemption and Steps go both ways. It consists of lock-free words, so a worker that is killed while it
// writes leaves nothing locked. The reader trusts none of it.

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace ddprun::flight_record {

inline constexpr std::uint64_t kMagic = 0x4172616f42706464u;  // "ddpBoarA"
inline constexpr std::size_t kOperations = 2'000;             ///< entries: the newest ones, as in c10d's recorder
inline constexpr std::size_t kGroups = 64;                    ///< live groups; others are only counted
inline constexpr std::size_t kRuns = 32;                      ///< of a group's members
inline constexpr std::size_t kDevices = 16;                   ///< CUDA devices whose calls are recorded

/// Guarded is a seqlock (Boehm 2012, doi:10.1145/2247684.2247688) for a plain value. Threads of one process store it;
/// any process loads it, and never gets half of one value and half of another.
template <typename T>
class Guarded {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(std::uint64_t) == 0);
    using Words = std::array<std::uint64_t, sizeof(T) / sizeof(std::uint64_t)>;

public:
    /// Makes readers ignore the value until finish_store(). Returns false, and changes nothing, while another thread
    /// stores.
    [[nodiscard]] bool begin_store() {
        std::uint64_t even = version_.load(std::memory_order_relaxed);
        if (even % 2 != 0 || !version_.compare_exchange_strong(even, even + 1, std::memory_order_acquire)) return false;
        std::atomic_thread_fence(std::memory_order_release);
        return true;
    }
    /// Stores the value, and lets readers take it.
    void finish_store(const T& value) {
        const auto* from = reinterpret_cast<const std::byte*>(&value);
        for (std::atomic<std::uint64_t>& word : words_) {  // one by one: a copy of all would be another pass
            std::uint64_t bits = 0;
            std::memcpy(&bits, from, sizeof bits);
            word.store(bits, std::memory_order_relaxed);
            from += sizeof bits;
        }
        version_.store(version_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }
    /// Stores a value that only one thread at a time stores. It ends a store that was begun and then interrupted.
    void store(const T& value) {
        if (const std::uint64_t odd = version_.load(std::memory_order_relaxed); odd % 2 != 0)
            version_.store(odd + 1, std::memory_order_relaxed);
        if (begin_store()) finish_store(value);
    }
    /// Clears the value as if none was ever stored. No reader gets half of the old one.
    void clear() {
        version_.store(0, std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_release);
        for (std::atomic<std::uint64_t>& word : words_) word.store(0, std::memory_order_relaxed);
    }
    /// Loads the value. Returns false if none was ever stored, or a writer is storing or died while storing.
    [[nodiscard]] bool load(T& value) const {
        const std::uint64_t before = version_.load(std::memory_order_acquire);
        if (before == 0 || before % 2 != 0) return false;
        Words words;
        for (std::size_t i = 0; i < words.size(); ++i) words[i] = words_[i].load(std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_acquire);
        if (version_.load(std::memory_order_relaxed) != before) return false;
        value = std::bit_cast<T>(words);
        return true;
    }

private:
    std::atomic<std::uint64_t> version_{0};
    std::array<std::atomic<std::uint64_t>, sizeof(T) / sizeof(std::uint64_t)> words_{};
};

/// Operation: one entry of the flight record. Texts are cut to the room they have (users' texts between two characters,
/// with "…"), and end with a zero byte only where there is room for one. Times are nanoseconds of CLOCK_MONOTONIC. An
/// entry with `op` "arrived" is a message of `peer` that no receive matches, see note_arrival(). It has more than 15
/// members because another process reads this memory: each is one field of the entry, of a fixed size.
struct Operation {
    std::uint64_t id = 0;       ///< counted from 1 over all groups of the process; its slot is id % kOperations
    std::uint32_t group = 0;    ///< Group::id
    std::int32_t peer = -1;     ///< root, or the other side of a send or receive, in the group; -1: it has none
    std::uint64_t seq = 0;      ///< in the group, from 1; of a send or receive: the latest collective's
    std::uint64_t p2p_seq = 0;  ///< 0: a collective; else its number among the group's sends and receives
    std::int32_t transfer_tag = 0;
    std::uint32_t timeout_ms = 0;  ///< how long after `queued` its deadline is; the largest number: that long or longer
    std::uint64_t count = 0;       ///< elements, as the ranks compare them
    std::uint64_t input_count = 0;
    std::uint64_t output_count = 0;
    std::uint64_t fingerprint = 0;  ///< what else the ranks compare; 0: nothing
    std::int64_t queued = 0;
    std::array<char, 24> op{};
    std::array<char, 8> reduce{};
    std::array<char, 8> dtype{};
    std::array<char, 40> tag{};
};

/// A run of `count` ranks, numbered in the job: `first`, `first + stride`, …
struct Run {
    std::int32_t first = 0;
    std::int32_t count = 0;
    std::int32_t stride = 1;
    std::int32_t unused = 0;
};

/// A group that this rank is a member of. `live` is 0 after its end, until another group takes the slot.
struct Group {
    std::uint32_t id = 0;  ///< counted from 1; 0: no group
    std::uint32_t live = 0;
    std::int32_t rank = 0;
    std::int32_t size = 0;
    std::uint64_t run_count = 0;  ///< 0: the members did not fit
    std::array<Run, kRuns> runs{};
    std::array<char, 128> name{};
};

/// The phase that the user's program is in, and since when.
struct Phase {
    std::int64_t since = 0;
    std::array<char, 64> text{};
};

/// The call of NCCL or of the CUDA driver in which the thread is that runs a device's operations.
struct DeviceCall {
    std::int64_t since = 0;       ///< 0: the thread is in no call
    std::uint64_t operation = 0;  ///< Operation::id of the operation that the call is for; 0: it has no entry
    std::array<char, 40> call{};  ///< "ncclAllReduce"
};

/// The first call of ProcessGroup::abort() by this rank.
struct Abort {
    std::int64_t at = 0;
    std::uint64_t after = 0;  ///< Operation::id of the latest operation that the process had called before
    std::array<char, 120> reason{};
};

/// The error with which an operation ended, as far as the diagnosis depends on it: a set of these.
enum class Failure : std::uint64_t {
    kOther = 0,
    kTimedOut = 1,
    kMismatch = 2,
    kPeerFailed = 4,  ///< another rank failed before: it was lost, or it reported the error
};
[[nodiscard]] constexpr Failure operator|(Failure some, Failure more) {
    return static_cast<Failure>(static_cast<std::uint64_t>(some) | static_cast<std::uint64_t>(more));
}
[[nodiscard]] constexpr bool contains(Failure all, Failure one) { return (all | one) == all; }

/// Returns `failure` with a rank of the job in its upper half: the peer whose host acknowledges nothing that this rank
/// sends, while the operation is in progress or when it failed; -1: there is none.
[[nodiscard]] constexpr Failure with_unreachable(Failure failure, std::int32_t rank) {
    const auto set = static_cast<std::uint64_t>(failure) & UINT32_MAX;
    return static_cast<Failure>(set | static_cast<std::uint64_t>(static_cast<std::uint32_t>(rank) + 1U) << 32);
}
[[nodiscard]] constexpr std::int32_t unreachable_in(Failure failure) {
    // Without overflow, whatever the worker has written.
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(static_cast<std::uint64_t>(failure) >> 32) - 1U);
}

/// The slot of one operation. Slots are used in turn, so a new operation replaces the oldest one.
struct OperationSlot {
    std::atomic<std::uint64_t> id{0};  ///< of the operation that has the slot; 0: none, or one that was refused
    Guarded<Operation> operation;
    /// When it started and ended; 0: not yet. Both are written later than the rest, and only while the operation still
    /// has the slot. (If a thread stops between that check and the store, and kOperations others begin, it marks the
    /// wrong operation.)
    std::atomic<std::int64_t> started{0};
    std::atomic<std::int64_t> ended{0};  ///< negative: with an error
    /// When a thread began to wait for it; negative: when a thread began to poll it, perhaps with other work in
    /// between; 0: it was only posted.
    std::atomic<std::int64_t> waited{0};
    std::atomic<Failure> failure{Failure::kOther};
};

/// The slot of one group, with its progress on this rank.
struct GroupSlot {
    Guarded<Group> group;
    /// The latest collective that was queued, was started and has completed, by its number in the group; 0: none yet.
    std::atomic<std::uint64_t> queued{0};
    std::atomic<std::uint64_t> started{0};
    std::atomic<std::uint64_t> done{0};  ///< without an error
    Guarded<Abort> abort;
    /// When this rank's program began to destroy the group while the group was still valid; negative: it did so while
    /// an exception propagated; 0: it has not.
    std::atomic<std::int64_t> left{0};
    std::atomic<std::uint64_t> left_after{0};  ///< as Abort::after; written before `left`
};

/// A notice of preemption, and the workers' agreement on when to stop (docs/design/031-preemption.md). An agent that
/// has stored `noticed` and then reads `calls` knows that the worker sees the notice in its next call at the latest:
/// both sides store and load with sequential consistency.
struct Preemption {
    std::atomic<std::uint64_t> noticed{0};  ///< by the agent: 1 after a notice
    std::atomic<std::uint64_t> stop_at{0};  ///< by the agent: the call in which all ranks stop; 0: not agreed yet
    std::atomic<std::uint64_t> calls{0};    ///< by the worker: its calls of ddp::agree_to_stop()
};

/// The steps of the training, as the program calls ddp::set_step(). Times are as those of an operation; 0: not yet.
struct Steps {
    std::atomic<std::uint64_t> begun_before{0};  ///< by the agent: the greatest of an earlier group, plus one; 0: none
    std::atomic<std::uint64_t> begun{0};         ///< by the worker: the greatest, plus one; 0: none
    std::atomic<std::int64_t> first_at{0};       ///< when the first was begun
    std::atomic<std::int64_t> new_at{0};         ///< when the first was begun that no earlier group had begun
};

/// Notes that `step` begins at `now`. A thread of the worker alone, or the agent for a worker that writes steps to a
/// file. The greatest number is ignored: it has no successor.
inline void note_step(Steps& steps, std::uint64_t step, std::int64_t now) {
    const std::uint64_t begun = step + 1;
    if (begun == 0) return;
    if (begun > steps.begun.load(std::memory_order_relaxed)) steps.begun.store(begun, std::memory_order_relaxed);
    const auto mark = [now](std::atomic<std::int64_t>& since) {
        if (since.load(std::memory_order_relaxed) == 0) since.store(now, std::memory_order_relaxed);
    };
    mark(steps.first_at);
    if (step >= steps.begun_before.load(std::memory_order_relaxed)) mark(steps.new_at);
}

/// The whole memory of one flight record.
struct Memory {
    std::uint64_t magic = kMagic;
    std::uint64_t bytes = sizeof(Memory);
    std::atomic<std::int64_t> pid{0};  ///< of the writer; 0: none yet; negative: it clears what its predecessor wrote
    alignas(64) Preemption preemption;
    alignas(64) Steps steps;
    alignas(64) std::atomic<std::uint64_t> last_operation{0};
    alignas(64) Guarded<Phase> phase;
    alignas(64) std::array<Guarded<DeviceCall>, kDevices> device_calls;  ///< by the index of the device
    std::atomic<std::uint64_t> hidden_groups{0};                         ///< that live now and have no slot
    std::array<GroupSlot, kGroups> groups;
    std::array<OperationSlot, kOperations> operations;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free);

/// Names the environment variable that holds the number of the inherited descriptor.
inline constexpr const char* kDescriptorVariable = "DDPRUN_RECORDER_FD";

}  // namespace ddprun::flight_record
