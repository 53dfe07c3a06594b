#pragma once
// NodeRanks: the ranks of a group that share a machine, as one of them sees them: their names, their processes, and
// the memory that each of them shares. It also holds the Waiter of the own rank and wakes the others. Immutable after
// construction, so any thread may use it.

#include <memory>
#include <string>
#include <vector>

#include "common/system/unique_fd.hpp"
#include "worker_lib/src/native/shm/segment.hpp"
#include "worker_lib/src/native/shm/waiter.hpp"

namespace ddp::detail {

/// One rank of the node.
struct LocalRank {
    int rank = 0;          ///< in the group
    int global_rank = -1;  ///< in the job, for errors
    std::shared_ptr<Segment> segment;
    ddprun::UniqueFd process;  ///< pidfd; none for the own process
    std::string name;          ///< for errors: "rank 3 (host a, pid 71)"
};

class NodeRanks {
public:
    /// `ranks` by local index; the own one is at `own_index`. group_size: the number of ranks on all nodes.
    NodeRanks(std::string group, int group_size, std::vector<LocalRank> ranks, int own_index);

    [[nodiscard]] int size() const { return static_cast<int>(controls_.size()); }
    [[nodiscard]] int own_index() const { return own_index_; }
    [[nodiscard]] const std::string& group() const { return group_; }
    [[nodiscard]] int group_size() const { return group_size_; }
    [[nodiscard]] const LocalRank& local(int index) const { return ranks_[static_cast<std::size_t>(index)]; }
    [[nodiscard]] const LocalRank& own_local() const { return local(own_index_); }
    [[nodiscard]] int rank_at(int index) const { return local(index).rank; }
    [[nodiscard]] Control& control(int index) const { return *controls_[static_cast<std::size_t>(index)]; }
    [[nodiscard]] Control& own() const { return own_; }
    [[nodiscard]] std::byte* staging(int index) const { return local(index).segment->staging(); }
    [[nodiscard]] std::byte* heap(int index) const { return local(index).segment->heap(); }
    /// Calls Segment::prepare_staging() for the own segment.
    void prepare_staging(std::size_t bytes) const { own_local().segment->prepare_staging(bytes); }

    /// Returns the name of the own rank for errors, as name_self().
    [[nodiscard]] std::string self() const;
    /// Returns the names of those of `ranks`, which are numbers in the group, that are ranks of this node.
    [[nodiscard]] std::string names_of(const std::vector<int>& ranks) const;
    /// Returns the pid of the rank at `index` if it is stopped, as detail::stopped_pid().
    [[nodiscard]] int stopped_pid(int index) const;

    /// Returns whether ranks of the node have to share cores. A rank that spins may then keep a peer from the very step
    /// that it waits for.
    [[nodiscard]] bool oversubscribed() const { return waiter_.oversubscribed(); }
    [[nodiscard]] const Waiter& waiter() const { return waiter_; }
    /// Wakes all other ranks that sleep. Call it after the change for which they may wait.
    void wake_all() const {
        waiter_.fence();
        for (int i = 0; i < size(); ++i) {
            if (i != own_index_) Waiter::wake(control(i));
        }
    }
    /// Publishes the core on which this thread runs, for peers that wait for this rank on an oversubscribed node.
    void publish_core() const {
        if (!oversubscribed()) return;
        const std::uint32_t core = this_core();
        if (own_.core.load(std::memory_order_relaxed) != core) own_.core.store(core, std::memory_order_relaxed);
    }
    /// Returns whether a rank from `first` on for which `arrived(index)` is false was last seen on this thread's core.
    template <typename HasArrived>
    [[nodiscard]] bool needs_this_core(int first, HasArrived arrived) const {
        const std::uint32_t own_core = this_core();
        for (int i = first; i < size(); ++i) {
            const std::uint32_t core = control(i).core.load(std::memory_order_relaxed);
            if ((core == own_core || core == 0) && !arrived(i)) return true;
        }
        return false;
    }

private:
    /// Returns 1 + the core of the calling thread, as in Control::core; 0: unknown.
    [[nodiscard]] static std::uint32_t this_core();

    const std::string group_;
    const int group_size_;
    const std::vector<LocalRank> ranks_;
    const std::vector<Control*> controls_;  ///< of ranks_
    const int own_index_;
    Control& own_;
    const Waiter waiter_;
};

}  // namespace ddp::detail
