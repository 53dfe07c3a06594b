#include "ddp/reducer.hpp"

#include <cstring>
#include <exception>
#include <mutex>
#include <utility>

#include "common/clock.hpp"
#include "worker_lib/src/reducer/agreement.hpp"
#include "worker_lib/src/reducer/broadcast.hpp"

namespace ddp {
namespace {

std::vector<std::string> describe(const std::vector<ParamSpec>& params, const ReducerOptions& options) {
    std::vector<std::string> items;
    items.reserve(params.size() + 1);
    items.push_back("bucket limits of " + std::to_string(options.first_bucket_cap_bytes) + " and " +
                    std::to_string(options.bucket_cap_bytes) + " bytes, alignment " +
                    std::to_string(options.align_bytes));
    for (std::size_t i = 0; i < params.size(); ++i) {
        items.push_back("parameter " + std::to_string(i) + " '" + params[i].name + "' " +
                        std::string(to_string(params[i].dtype)) + "[" + std::to_string(params[i].count) + "]");
    }
    return items;
}

[[noreturn]] void refuse(const std::string& text) { throw Error(ErrorCode::InvalidArgument, text); }

}  // namespace

/// The state of one backward. `mutex_` guards everything that mark() touches, as that runs on any thread; it also makes
/// the launches one sequence, the same on all ranks: bucket k starts only after bucket k - 1 has started.
class GradientReducer::Impl {
public:
    Impl(ProcessGroup& parent, std::vector<ParamSpec> params, const ReducerOptions& options)
        : specs_(std::move(params)) {
        if (parent.backend() != Backend::Native) {
            refuse(
                "GradientReducer works on native groups so far: pass {.backend = ddp::Backend::Native} to "
                "init_from_env");
        }
        group_ = parent.split(0, parent.rank(), "reducer");
        detail::require_agreement(*group_, "the parameters", describe(specs_, options));
        plan_ = plan_buckets(specs_, options);
        // Equal inputs, so this differs only if the nodes run different versions of this library.
        const std::vector<std::string> plan{"bucket plan " + std::to_string(plan_.hash())};
        detail::require_agreement(*group_, "the bucket plan", plan);
        allocate();
    }

    Buffer grad(std::size_t i) {
        check_index(i);
        return {params_[i].data, specs_[i].count, specs_[i].dtype, Device::Cpu};
    }

    void begin(bool sync) {
        const std::lock_guard lock(mutex_);
        if (phase_ == Phase::kFailed)
            throw Error(ErrorCode::Aborted, "this GradientReducer failed earlier: " + failure_);
        if (phase_ != Phase::kIdle) refuse("begin_backward: the backward before was not ended by finish_backward");
        for (Param& param : params_) param.marked = false;
        for (Bucket& bucket : buckets_) bucket.pending = bucket.slots;
        next_bucket_ = 0;
        phase_ = sync ? Phase::kSyncing : Phase::kAccumulating;
        began_ = ddprun::Clock::now();
    }

    void mark(std::size_t i, bool unused) {
        check_index(i);
        const std::lock_guard lock(mutex_);
        if (phase_ != Phase::kSyncing && phase_ != Phase::kAccumulating) {
            refuse("parameter '" + specs_[i].name + "' was marked outside begin_backward … finish_backward");
        }
        if (std::exchange(params_[i].marked, true)) {
            refuse("parameter '" + specs_[i].name +
                   "' was marked twice in one backward. Mark a gradient once, when it is " +
                   "complete: if layers share it, after the last of them");
        }
        // What earlier backwards without sync have added up here must survive.
        if (unused && !has_accumulated_) std::memset(params_[i].data, 0, specs_[i].count * size_of(specs_[i].dtype));
        if (phase_ == Phase::kAccumulating) return;
        --buckets_[params_[i].bucket].pending;
        launch_complete_buckets();
    }

    void finish() {
        const bool sync = end_marking();
        const auto wait_began = ddprun::Clock::now();
        if (sync) wait_for_buckets();
        const auto now = ddprun::Clock::now();
        const std::lock_guard lock(mutex_);
        phase_ = Phase::kIdle;
        has_accumulated_ = !sync;
        stats_.backward += now - began_;
        if (!sync) return;
        ++stats_.steps;
        stats_.exposed += now - wait_began;
        for (const BucketPlan::Bucket& bucket : plan_.buckets) stats_.bytes_reduced += bucket.bytes;
    }

    void sync_parameters(std::span<const Buffer> params, int root) {
        detail::broadcast_in_pieces(*group_, params, root, "parameters");
    }

    [[nodiscard]] const BucketPlan& plan() const { return plan_; }
    [[nodiscard]] ReducerStats stats() const {
        const std::lock_guard lock(mutex_);
        ReducerStats stats = stats_;
        for (std::size_t b = 0; b < next_bucket_; ++b) stats.buckets_done += buckets_[b].work.done() ? 1 : 0;
        return stats;
    }

private:
    enum class Phase { kIdle, kSyncing, kAccumulating, kFailed };
    struct Param {
        std::size_t bucket = 0;
        std::byte* data = nullptr;
        bool marked = false;
    };
    struct Bucket {
        Buffer buffer;
        std::size_t slots = 0;
        std::size_t pending = 0;  ///< gradients of this backward that are not complete yet
        std::string tag;
        Work work;
    };

    void allocate() {
        params_.resize(specs_.size());
        buckets_.resize(plan_.buckets.size());
        for (std::size_t b = 0; b < buckets_.size(); ++b) {
            const BucketPlan::Bucket& planned = plan_.buckets[b];
            auto* memory = static_cast<std::byte*>(group_->arena().allocate(planned.bytes));
            buckets_[b].buffer = {memory, planned.bytes / size_of(planned.dtype), planned.dtype, Device::Cpu};
            buckets_[b].slots = planned.slots.size();
            buckets_[b].tag = "bucket " + std::to_string(b);
            for (const BucketPlan::Slot& slot : planned.slots)
                params_[slot.param] = {b, memory + slot.offset_bytes, false};
        }
    }

    void check_index(std::size_t i) const {
        if (i >= specs_.size()) {
            refuse("there is no parameter " + std::to_string(i) + ": " + std::to_string(specs_.size()) +
                   " were registered");
        }
    }

    void launch_complete_buckets() {
        while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].pending == 0) {
            Bucket& bucket = buckets_[next_bucket_++];
            try {
                bucket.work = group_->all_reduce(bucket.buffer, ReduceOp::Avg, {}, {.timeout = {}, .tag = bucket.tag});
            } catch (const std::exception& error) {
                fail(error.what());  // else a caller that drops this exception would finish with unreduced gradients
                throw;
            }
        }
    }

    /// Whether this backward synchronises. Throws when a gradient is missing.
    bool end_marking() {
        const std::lock_guard lock(mutex_);
        if (phase_ == Phase::kFailed)
            throw Error(ErrorCode::Aborted, "this GradientReducer failed earlier: " + failure_);
        if (phase_ != Phase::kSyncing && phase_ != Phase::kAccumulating) {
            refuse("finish_backward was called without begin_backward");
        }
        std::string missing;
        for (std::size_t i = 0; i < params_.size(); ++i) {
            if (!params_[i].marked) missing += (missing.empty() ? "'" : ", '") + specs_[i].name + "'";
        }
        if (missing.empty()) return phase_ == Phase::kSyncing;
        fail("finish_backward: these parameters were not marked ready: " + missing +
             ". Call mark_ready for each gradient, or mark_unused for those that took no part");
        refuse(failure_);
    }

    /// The peers would wait until their deadline for buckets that never come: tell them at once.
    void fail(const std::string& why) {
        failure_ = why;
        phase_ = Phase::kFailed;
        group_->abort(why);
    }

    void wait_for_buckets() {
        try {
            for (Bucket& bucket : buckets_) bucket.work.wait();
        } catch (const std::exception& error) {
            const std::lock_guard lock(mutex_);
            fail(error.what());
            throw;
        }
    }

    const std::vector<ParamSpec> specs_;
    std::unique_ptr<ProcessGroup> group_;
    BucketPlan plan_;

    mutable std::mutex mutex_;
    Phase phase_ = Phase::kIdle;
    std::string failure_;
    std::vector<Param> params_;
    std::vector<Bucket> buckets_;
    std::size_t next_bucket_ = 0;
    bool has_accumulated_ = false;
    ddprun::TimePoint began_;
    ReducerStats stats_;
};

GradientReducer::GradientReducer(ProcessGroup& group, std::vector<ParamSpec> params, ReducerOptions options)
    : impl_(std::make_unique<Impl>(group, std::move(params), options)) {}
GradientReducer::~GradientReducer() = default;
GradientReducer::GradientReducer(GradientReducer&&) noexcept = default;

Buffer GradientReducer::grad(std::size_t i) { return impl_->grad(i); }
void GradientReducer::begin_backward(bool sync) { impl_->begin(sync); }
void GradientReducer::mark_ready(std::size_t i) { impl_->mark(i, false); }
void GradientReducer::mark_unused(std::size_t i) { impl_->mark(i, true); }
void GradientReducer::finish_backward() { impl_->finish(); }
void GradientReducer::sync_parameters(std::span<const Buffer> params, int root) {
    impl_->sync_parameters(params, root);
}
const BucketPlan& GradientReducer::plan() const { return impl_->plan(); }
ReducerStats GradientReducer::stats() const { return impl_->stats(); }

}  // namespace ddp
