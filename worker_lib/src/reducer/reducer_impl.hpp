#pragma once
// GradientReducer::Impl: the state of one backward after another.
//
// `mutex_` guards everything that marking touches, as that runs on any thread; it also makes the launches one sequence,
// the same on all ranks: bucket k starts only after bucket k - 1 has started. Gradients are copied and cleared outside
// of it, by the one thread that has claimed them.

#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.hpp"
#include "ddp/reducer.hpp"
#include "worker_lib/src/forks.hpp"
#include "worker_lib/src/reducer/bucket_finisher.hpp"
#include "worker_lib/src/reducer/gradient_storage.hpp"
#include "worker_lib/src/reducer/timeline.hpp"

namespace ddp {
namespace detail {

[[noreturn]] inline void refuse(const std::string& text) { throw Error(ErrorCode::InvalidArgument, text); }

}  // namespace detail

class GradientReducer::Impl {
public:
    Impl(ProcessGroup& parent, std::vector<ParamSpec> params, ReducerOptions options);
    ~Impl();
    /// Whether this process is a child of fork() of the one that made it.
    [[nodiscard]] bool is_elsewhere() const { return home_.is_elsewhere(); }

    [[nodiscard]] Buffer grad(std::size_t i) const;
    void bind(std::size_t i, Buffer external);
    void begin(bool sync);
    void mark(std::size_t i, bool unused);
    Step finish();
    void set_no_sync(int change);

    // For Join, whose ranks without batches follow what the others have announced.
    /// Each backward has to be announced, until the last Join has gone: one may be made before the last one goes.
    void join_begins() {
        if (joins_++ == 0 || next_ == Next::kEnded) next_ = Next::kUnannounced;  // ended: the one before has
    }
    void join_ends() {
        if (--joins_ == 0) next_ = Next::kAny;
    }
    /// The next backward has to be of this kind.
    void announce(bool sync) { next_ = sync ? Next::kSync : Next::kNoSync; }
    /// No rank has a batch for another one.
    void end_epoch() { next_ = Next::kEnded; }
    /// What was announced has not begun.
    [[nodiscard]] bool owes_backward() const { return next_ == Next::kSync || next_ == Next::kNoSync; }
    /// A backward, announced here, in which this rank has nothing to say.
    void shadow(bool sync);
    /// From the next backward on, averages are sums divided by `ranks`, of which the group may have more.
    void divide_by(int ranks);
    /// Throws Error{InvalidArgument}, and the reducer has failed here and on all peers, which would wait in vain.
    void end_for_misuse(const std::string& text);
    [[nodiscard]] int ranks() const { return group_->size(); }

    void sync_parameters(std::span<const Buffer> params, int root);
    void verify_parameters(std::span<const Buffer> params);
    [[nodiscard]] const BucketPlan& plan() const { return storage_->plan(); }
    [[nodiscard]] ReducerStats stats() const;

private:
    enum class Phase { kIdle, kSyncing, kAccumulating, kFailed };
    enum class Next { kAny, kSync, kNoSync, kUnannounced, kEnded };
    struct Param {
        int uses_left = 0;  ///< in this backward
        bool complete = false;
        bool used = false;  ///< since the last synchronised backward
    };
    struct Bucket {
        std::size_t pending = 0;  ///< gradients of this backward that are not complete yet
        std::string tag;
        Work work;
        ddprun::TimePoint wait_began;  ///< of the one that turns it into averages
        ddprun::TimePoint wait_ended;
    };

    void check_index(std::size_t i) const;
    [[nodiscard]] BucketPlan agree_on_plan();
    [[nodiscard]] bool in_backward() const { return phase_ == Phase::kSyncing || phase_ == Phase::kAccumulating; }
    void refuse_if_failed();

    // begin
    void check_announcement(bool sync) const;
    void make_buckets();
    void rebuild();
    void agree_on_step(bool sync);

    // mark: claim() and complete() take the lock, fill_in() does not
    enum class Fill { kNotYet, kNothing, kZero, kCopy };
    [[nodiscard]] Fill claim(std::size_t i, bool unused);
    [[nodiscard]] Fill how_to_fill(bool unused) const;
    void fill_in(std::size_t i, Fill how) const;
    void complete(std::size_t i);
    void launch_complete_buckets();
    [[nodiscard]] Work launch(std::size_t b);

    // finish
    void mark_the_rest();
    [[nodiscard]] bool end_marking();
    void wait_for(Work& work) const;
    void finish_bucket(std::size_t b);
    void finish_bucket_aside(std::size_t b) noexcept;
    /// Whether there is a finisher, for its own thread too: that must not look at finisher_, which may be ending.
    [[nodiscard]] bool finishes_aside() const { return options_.hook || options_.on_bucket_done; }
    void wait_for_buckets();
    [[nodiscard]] ddprun::Duration waited_since(ddprun::TimePoint time) const;
    [[nodiscard]] std::vector<bool> used_anywhere();
    void fail();
    /// What the peers take part in, too: if it throws, the reducer has failed. Not under the lock.
    template <typename Action>
    void or_fail(Action action) {
        try {
            action();
        } catch (...) {
            const std::lock_guard lock(mutex_);
            fail();
            throw;
        }
    }

    // how a sum becomes an average
    [[nodiscard]] ReduceOp op() const;
    [[nodiscard]] double factor_before() const;
    [[nodiscard]] double factor_after() const;

    const std::vector<ParamSpec> specs_;
    const ReducerOptions options_;
    std::unique_ptr<ProcessGroup> group_;
    std::shared_ptr<detail::Timeline> timeline_;  ///< null: not asked for
    int timeline_row_ = 0;
    std::optional<detail::GradientStorage> storage_;
    int divisor_ = 1;
    int no_sync_guards_ = 0;
    Next next_ = Next::kAny;
    int joins_ = 0;
    bool may_rebuild_ = false;  ///< until the order of the first synchronised step has been looked at

    mutable std::mutex mutex_;
    Phase phase_ = Phase::kIdle;
    std::string failure_;
    std::exception_ptr untold_;  ///< the failure itself, if no call has thrown it yet
    std::vector<Param> params_;
    std::vector<Bucket> buckets_;
    std::vector<std::size_t> ready_order_;  ///< of this backward, as it really was: a shadow has none
    std::size_t next_bucket_ = 0;
    bool has_accumulated_ = false;
    std::uint64_t backwards_ = 0;  ///< begun so far
    ddprun::TimePoint began_;
    ReducerStats stats_;
    const detail::ProcessMark home_;
    std::optional<detail::BucketFinisher> finisher_;  ///< if there is a hook or a callback; last: it uses the above
};

}  // namespace ddp
