#pragma once
// GroupImpl: the implementation of a ProcessGroup, for any backend. It owns the backend, checks arguments, numbers
// operations, sets deadlines, and splits and shrinks the group. Any thread may call it. Operations are numbered in the
// order of the calls.

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/mutex.hpp"
#include "worker_lib/src/group/backend.hpp"
#include "worker_lib/src/group/control_group.hpp"
#include "worker_lib/src/group/shrink/survivor_agreement.hpp"
#include "worker_lib/src/group/split_names.hpp"
#include "worker_lib/src/group/store_wait.hpp"
#include "worker_lib/src/tuning/light_mutex.hpp"
#include "worker_lib/src/util/forks.hpp"

namespace ddp::detail {

/// The memory that a part of a group takes: that of the group, or host memory. An NCCL group makes a native part then.
enum class PartMemory { kOfGroup, kHost };

class GroupImpl {
public:
    GroupImpl(GroupSpec spec, std::unique_ptr<BackendImpl> backend);
    ~GroupImpl();
    GroupImpl(const GroupImpl&) = delete;
    GroupImpl& operator=(const GroupImpl&) = delete;

    [[nodiscard]] static std::unique_ptr<ProcessGroup> handle(std::unique_ptr<GroupImpl> impl);
    [[nodiscard]] static GroupImpl& of(ProcessGroup& group) { return *group.impl_; }
    [[nodiscard]] const GroupSpec& spec() const { return spec_; }
    [[nodiscard]] int world_rank() const { return spec_.members[static_cast<std::size_t>(spec_.rank)]; }
    [[nodiscard]] BackendImpl& backend() { return *backend_; }

    /// Checks and numbers the operation, then submits it. A call that throws Error{InvalidArgument} takes no number.
    [[nodiscard]] Work submit(Operation&& operation, const OpOptions& options) EXCLUDES(mutex_);
    /// Assigns the next operations to the caller's step of this number; 0: to none. The ranks compare the number, so
    /// that a rank that is a step behind gets an error instead of the others' data.
    void set_step(std::uint64_t step) EXCLUDES(mutex_);
    /// Lets any thread submit operations, also to groups split from this one, because the caller orders its threads
    /// itself.
    void allow_any_thread();
    /// Does the same as submit() for sends and receives, which have numbers of their own.
    [[nodiscard]] Work transfer(TransferList batch, const OpOptions& options) EXCLUDES(mutex_);
    [[nodiscard]] Work transfer(const Transfer& one, const OpOptions& options) EXCLUDES(mutex_);
    [[nodiscard]] std::unique_ptr<ProcessGroup> split(int color, int key, std::string_view name,
                                                      PartMemory memory = PartMemory::kOfGroup) EXCLUDES(mutex_);
    [[nodiscard]] std::unique_ptr<ProcessGroup> shrink(std::span<const int> exclude) EXCLUDES(shrink_mutex_);
    /// Exchanges `value` with all ranks over the store, and returns theirs by rank. Collective, once per topic. Throws
    /// as split() does; `call` is the name of the call that absent ranks have not made.
    [[nodiscard]] std::vector<std::string> exchange_with_all(std::string_view topic, std::string_view value,
                                                             std::string_view call) EXCLUDES(mutex_);
    void monitored_barrier(std::optional<std::chrono::milliseconds> timeout, std::string_view where) EXCLUDES(mutex_);
    void abort(std::string_view reason);
    /// Returns the failure of this group or of its control group, as far as this rank knows of one.
    [[nodiscard]] std::optional<Error> failure();
    /// Calls WorkState::after_callbacks() for the group's works. Returns false in a child of fork().
    [[nodiscard]] bool after_callbacks(std::function<void()> end) const;

private:
    /// Throws Error{InvalidArgument} in a child of fork().
    void check_process() const;
    /// Returns the control group, which it makes on first need: collective then, and an error fails this group. Waits
    /// `timeout` at most for the other ranks. Throws the failure of this group, and as split() does.
    [[nodiscard]] GroupImpl& control_group(ddprun::Duration timeout) EXCLUDES(mutex_);
    [[nodiscard]] std::unique_ptr<GroupImpl> connect_control_group(ddprun::Duration timeout) EXCLUDES(mutex_);
    [[nodiscard]] std::uint64_t step() const EXCLUDES(mutex_);
    /// Aborts this group if its control group has failed, and the other way round.
    void share_failure();
    /// Exchanges the requests of all ranks for split `number`, and connects the ranks of this rank's color to a new
    /// group. Returns null if this rank has no color. `call` names the call in errors about absent ranks; `wait` shows
    /// it in the flight record.
    [[nodiscard]] std::unique_ptr<ProcessGroup> form_part(std::uint64_t number, const SplitRequest& own,
                                                          std::string_view call, const WaitAtStore& wait);
    /// Numbers the step, and shows it in the flight record as long as the result lives.
    [[nodiscard]] WaitAtStore wait_at_store(StoreStep step) EXCLUDES(mutex_);
    /// Numbers and submits the batch, without starting it.
    /// seq   gets the number
    [[nodiscard]] QueuedBatch queue(TransferList&& batch, const OpOptions& options, std::uint64_t& seq)
        EXCLUDES(mutex_);
    /// Returns what is wrong with a call of this thread; empty: nothing. Notes the thread.
    /// inside   the thread that was in submit() when this one called it; 0: none
    [[nodiscard]] std::string thread_complaint(pid_t inside) REQUIRES(mutex_);
    [[nodiscard]] ddprun::Duration timeout_of(const OpOptions& options) const;

    const GroupSpec spec_;
    GroupRecorder recorder_;  ///< before the backend, whose destructor still writes
    std::unique_ptr<BackendImpl> backend_;
    ControlGroup control_;  ///< empty unless spec_.make_control_backend
    const ProcessMark home_;
    bool any_thread_ = false;
    std::atomic<pid_t> inside_{0};  ///< the thread in submit(); 0: none
    mutable LightMutex mutex_;      ///< held while an operation gets its number and is submitted
    std::uint64_t last_seq_ GUARDED_BY(mutex_) = 0;
    pid_t last_thread_ GUARDED_BY(mutex_) = 0;  ///< that has submitted an operation; 0: none
    std::uint64_t step_ GUARDED_BY(mutex_) = 0;
    std::uint64_t last_transfer_ GUARDED_BY(mutex_) = 0;
    std::uint64_t splits_ GUARDED_BY(mutex_) = 0;
    std::uint64_t monitored_ GUARDED_BY(mutex_) = 0;
    std::uint64_t store_steps_ GUARDED_BY(mutex_) = 0;
    std::optional<GroupRecorder> store_recorder_ GUARDED_BY(mutex_);  ///< from the first wait_at_store() on
    ddprun::Mutex shrink_mutex_;                                      ///< held during a whole shrink()
    ShrinkHistory shrinks_ GUARDED_BY(shrink_mutex_);
};

[[nodiscard]] std::unique_ptr<ProcessGroup> make_group(GroupSpec spec, std::unique_ptr<BackendImpl> backend);

}  // namespace ddp::detail
