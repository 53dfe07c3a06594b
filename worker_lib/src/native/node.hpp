#pragma once
// Node: the ranks of a group that share a machine, seen from one of them: their memory, barriers between them, and how
// one that fails takes the others along. Whoever runs the group's operations owns it; poison(), relay(), and all const
// functions but those of an operation may come from any thread.

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/clock.hpp"
#include "common/unique_fd.hpp"
#include "ddp/error.hpp"
#include "worker_lib/src/native/arena.hpp"
#include "worker_lib/src/native/departure.hpp"
#include "worker_lib/src/native/segment.hpp"
#include "worker_lib/src/native/signature.hpp"
#include "worker_lib/src/native/waiter.hpp"

namespace ddp::detail {

/// One rank of the node.
struct LocalRank {
    int rank = 0;          ///< in the group
    int global_rank = -1;  ///< in the job, for errors
    std::shared_ptr<Segment> segment;
    ddprun::UniqueFd process;  ///< pidfd; none for the own process
    std::string name;          ///< for errors: "rank 3 (host a, pid 71)"
};

/// Which of a rank's buffers: what it gives, or what it gets. In place they are the same.
enum class Side : std::uint8_t { kInput, kOutput };

/// A rank that is gone, from wherever that is known.
struct Absence {
    std::optional<std::uint64_t> after;  ///< the last operation that it has done; nothing: unknown
    Error error;                         ///< the departure, in words
    Departure how = Departure::kEnded;
};

/// Of Node::share_out().
inline constexpr std::size_t kMostShareParts = 50'000;

class Node {
public:
    /// `ranks` by local index; the own one is at `own_index`. is_whole_group: the group has no others.
    Node(std::string group, std::vector<LocalRank> ranks, int own_index, bool is_whole_group);

    [[nodiscard]] int size() const { return static_cast<int>(ranks_.size()); }
    [[nodiscard]] int own_index() const { return own_index_; }
    [[nodiscard]] const std::string& group() const { return group_; }
    [[nodiscard]] const LocalRank& local(int index) const { return at(index); }
    [[nodiscard]] int rank_at(int index) const { return at(index).rank; }
    /// This rank for errors, as name_self().
    [[nodiscard]] std::string self() const;
    /// Whether ranks of the node have to share cores, so that whoever spins may keep another from what it waits for.
    [[nodiscard]] bool crowded() const { return waiter_.crowded(); }
    [[nodiscard]] const Waiter& waiter() const { return waiter_; }

    /// The first step of an operation: announces it, where its buffers lie, and up to kInlineBytes of `data`. Waits for
    /// nobody but a peer that is kAhead meetings behind. Throws as barrier().
    void open(const Operation& operation, const Places& places, std::span<const std::byte> data = {});
    /// The same, unless it would have to wait: then nothing has happened.
    [[nodiscard]] bool try_open(const Operation& operation, const Places& places, std::span<const std::byte> data);
    /// The second step: waits until all ranks of the node have opened the operation, and compares. Until done() after
    /// it, what they have announced is valid here. Throws Mismatch naming both sides, and as barrier().
    void join(const Operation& operation);
    void meet(const Operation& operation, const Places& places) {
        open(operation, places);
        join(operation);
    }
    /// The same for the only one that is opened and not joined, unless a rank stays away for longer than a moment or
    /// has called something else: then nothing has happened.
    [[nodiscard]] bool try_join();
    /// After that, and a begin() behind it: deadline() becomes what join() would have made it.
    void take_earliest_deadline();
    /// What a rank has announced beside it.
    [[nodiscard]] const std::byte* data(int index) const { return meeting(index).data.data(); }
    /// A later one of the same operation. Returns when all ranks of the node have come. Throws Timeout or PeerLost with
    /// the culprits, or the failure of whoever poisoned the node. When it gives up is in deadlines.hpp.
    void barrier(const Operation& operation) {
        check_read(operation);
        arrive();
        wait_at_barrier(operation);
    }
    /// Whether the program of a rank may have got its buffers back, and written to them before we had read them: to be
    /// looked at when that is done, and before any rank of this node may take this rank's part for done.
    [[nodiscard]] bool any_gives_up(const Operation& operation) const;
    /// To be called between reading what peers have announced and showing what that came to to other nodes, whose ranks
    /// hear of a failure here only later. Throws as barrier() if a rank has given up by now.
    void check_read(const Operation& operation) const {
        if (size() > 1 && any_gives_up(operation)) await_failure(operation);
    }
    /// The barrier in two steps, the second of which may be tried first: whether all come within a moment.
    void arrive();
    [[nodiscard]] bool try_barrier() const;
    void wait_at_barrier(const Operation& operation) const;

    /// Part number `part` of the share of the rank at `owner`.
    using DoPart = std::function<void(int owner, std::size_t part)>;
    /// Instead of a barrier, for work on what has been announced that any rank can do as well: each rank's share of it
    /// has `parts` parts, at most kMostShareParts, and each part is done by one rank, whoever comes first. Returns when
    /// all are done; throws as barrier(), but waits for nobody who does none.
    void share_out(const Operation& operation, std::size_t parts, const DoPart& do_part);

    /// Whether a rank's buffer lies outside its heap, so that it passes through its staging slot.
    [[nodiscard]] bool is_foreign(int index, Side side) const { return place_of(index, side) == Places::kForeign; }
    [[nodiscard]] bool any_foreign(Side side) const;
    [[nodiscard]] std::byte* staging(int index) const { return at(index).segment->staging(); }
    void prepare_staging(std::size_t bytes) const { at(own_index_).segment->prepare_staging(bytes); }
    /// Whether all copy to their slots past the caches.
    [[nodiscard]] bool streams() const { return announced(0).places.streams; }
    /// A rank's buffer in its heap; not for foreign ones.
    [[nodiscard]] std::byte* buffer(int index, Side side) const {
        return at(index).segment->heap() + place_of(index, side);
    }

    /// Makes the group unusable on this node: every wait here in an operation later than number `after` ends with
    /// `failure`, now and later. Of several the first failure counts, and the least number. What was done by whoever
    /// failed is left alone: a peer that is still at it has all that it needs, or gets it from those who are.
    void poison(const Error& failure, std::uint64_t after = 0);
    /// The same for our own waits only, in what we have not done: peers find out by leave().
    void stop(const Error& failure);
    /// Whether it was stop(), and nothing before it, that made the group unusable here.
    [[nodiscard]] bool stopped() const { return stopped_; }
    /// The same as poison(), with a failure of elsewhere whose text needs no reporter's name before it.
    void relay(const Error& failure, std::uint64_t after = 0);
    /// Tells all of the failure with which the node is poisoned, unless it is stop()'s: who found it may have died
    /// before it had told everybody. `after`: we take part in no later operation. Call it before work fails with it.
    void pass_on(std::uint64_t after) const;
    /// Throws the failure if the node is poisoned for that operation.
    void check_poison(const Operation& operation) const {
        if (spoils(operation)) check_failure(operation);
    }
    /// The same for any: to be called when a rank that is needed is gone, which may be because of a failure in a later
    /// operation.
    void check_failure(const Operation& operation) const;
    /// The failure with which the node is poisoned, as our own operations report it, and as ranks of other nodes
    /// should.
    [[nodiscard]] std::optional<Error> failure() const;
    [[nodiscard]] std::optional<Error> failure_for_others() const;
    /// The same if it was another rank that found it.
    [[nodiscard]] std::optional<Error> failure_of_others() const;
    [[nodiscard]] bool poisoned() const { return own().poisoned_by.load(std::memory_order_seq_cst) != 0; }
    [[nodiscard]] std::uint64_t spoiled_after() const { return own().spoiled_after.load(std::memory_order_seq_cst); }
    /// Tells peers, who may be waiting for us in an operation to come, that there will be none.
    void leave(Departure how);

    /// Around every operation: how far we are.
    void begin(const Operation& operation);
    void done(const Operation& operation);
    [[nodiscard]] std::uint64_t last_done() const { return own().done.load(std::memory_order_acquire); }
    /// The deadline of the operation in hand: the earliest of all ranks of the node once they have met, so that none
    /// gives up for one that may wait longer.
    [[nodiscard]] ddprun::TimePoint deadline() const { return deadline_; }
    /// Says that we wait for messages, and are well. Call it several times within kSilence.
    void say_listening() const;
    /// Says that we wait for somebody, whoever it is, for those who wait for our sends and receives.
    void say_waiting() const;
    /// Why the rank at `index` will come to no operation any more and after which one it left, if it is gone.
    [[nodiscard]] std::optional<Absence> absence(int index) const;
    [[nodiscard]] Absence own_absence(Departure how) const;
    /// Of the rank at `index`, as stopped_pid().
    [[nodiscard]] int stopped_pid(int index) const;
    /// The operation that a rank has begun last, and the last that it has done.
    struct OperationsOf {
        std::uint64_t begun = 0;
        std::uint64_t done = 0;
    };
    [[nodiscard]] OperationsOf progress_of(int index) const {
        const std::uint64_t done = control(index).done.load(std::memory_order_acquire);
        return {control(index).begun.load(std::memory_order_acquire), done};
    }
    /// Whether a rank of this node has begun an operation later than number `seq`; any that it has not done.
    [[nodiscard]] bool any_beyond(std::uint64_t seq) const;
    [[nodiscard]] bool any_busy() const;

private:
    [[nodiscard]] const LocalRank& at(int index) const { return ranks_[static_cast<std::size_t>(index)]; }
    [[nodiscard]] Control& control(int index) const { return at(index).segment->control(); }
    [[nodiscard]] Control& own() const { return control(own_index_); }
    /// Of the meeting that we have joined last.
    [[nodiscard]] const Meeting& meeting(int index) const { return control(index).meetings[joined_ % kAhead]; }
    [[nodiscard]] const Announcement& announced(int index) const { return meeting(index).announcement; }
    [[nodiscard]] std::uint64_t place_of(int index, Side side) const {
        const Places& places = announced(index).places;
        return side == Side::kInput ? places.input : places.output;
    }
    class Silence;
    [[nodiscard]] bool has_room_for_us(int index) const;
    [[nodiscard]] bool has_room();
    [[nodiscard]] bool has_opened(int index, std::uint64_t number) const;
    [[nodiscard]] bool has_arrived(int index) const;
    template <typename HasCome>
    [[nodiscard]] bool all_come_soon(HasCome has_come) const;
    void say_core() const;
    template <typename HasCome>
    [[nodiscard]] bool needs_our_core(int first, HasCome has_come) const;
    void announce(const Operation& operation, const Places& places, std::span<const std::byte> data);
    template <typename HasCome>
    void wait_for_all(const Operation& operation, HasCome has_come) const;
    template <typename HasCome>
    void check_progress(const Operation& operation, Silence& silence, HasCome has_come) const;
    /// wait_for_all() for other files.
    void wait_until(const Operation& operation, const std::function<bool(int index)>& has_come) const;
    void await_failure(const Operation& operation) const;
    void finish_shares(const Operation& operation, std::size_t parts);
    [[nodiscard]] bool all_finished(std::size_t parts) const;
    /// give_up() says so, also for who only leaves.
    [[nodiscard]] bool gives_up(int index, const Operation& operation) const {
        return control(index).spoiled_after.load(std::memory_order_relaxed) < operation.seq;
    }
    [[nodiscard]] bool spoils(const Operation& operation) const { return spoiled_after() < operation.seq; }
    void compare(const Operation& operation) const;
    [[nodiscard]] std::vector<int> contradicted() const;
    [[nodiscard]] std::string names_of(const std::vector<int>& ranks) const;
    void wake_all() const;
    enum class Hearers : std::uint8_t { kAll, kOwnRank };
    void give_up(const Error& failure, Wording wording, Hearers hearers, std::uint64_t after);
    [[nodiscard]] bool note(const Error& failure, Wording wording, Hearers hearers);
    [[nodiscard]] Error view_of(int index, bool named) const;
    void accuse(int index, int author, std::uint64_t after) const;

    const std::string group_;
    const std::vector<LocalRank> ranks_;
    const int own_index_;
    const bool is_whole_group_;
    const Waiter waiter_;
    std::uint64_t opened_ = 0;     ///< meetings
    Identity opened_identity_;     ///< in the last of those
    std::uint64_t joined_ = 0;     ///< meetings, of those
    std::uint64_t room_ = kAhead;  ///< up to this meeting there is room for us, as far as we know
    std::uint64_t barriers_ = 0;   ///< at which we have arrived
    ddprun::TimePoint deadline_;
    std::mutex poison_mutex_;
    bool noted_ = false;
    std::atomic<bool> stopped_{false};
};

}  // namespace ddp::detail
