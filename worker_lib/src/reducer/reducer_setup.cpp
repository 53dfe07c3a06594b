// What is around the backward: construction, views, plans, agreement between ranks, statistics.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <exception>
#include <utility>

#include "worker_lib/src/fnv.hpp"
#include "worker_lib/src/group.hpp"
#include "worker_lib/src/reducer/agreement.hpp"
#include "worker_lib/src/reducer/broadcast.hpp"
#include "worker_lib/src/reducer/reducer_impl.hpp"

namespace ddp {
namespace {

using detail::refuse;

std::string describe(std::size_t i, const ParamSpec& param) {
    return "parameter " + std::to_string(i) + " '" + param.name + "' " + std::string(to_string(param.dtype)) + "[" +
           std::to_string(param.count) + "]";
}

std::string_view name_of(Average average) {
    switch (average) {
        case Average::Auto: return "Auto";
        case Average::Pre: return "Pre";
        case Average::Post: return "Post";
        case Average::InReduce: return "InReduce";
    }
    return "?";
}

/// Everything that decides which collectives a rank makes.
std::vector<std::string> describe(const std::vector<ParamSpec>& params, const ReducerOptions& options) {
    std::vector<std::string> items;
    items.reserve(params.size() + 2);
    items.push_back("bucket limits of " + std::to_string(options.limits.first_bucket_cap_bytes) + " and " +
                    std::to_string(options.limits.bucket_cap_bytes) + " bytes, alignment " +
                    std::to_string(options.limits.align_bytes));
    items.push_back(
        std::string(options.hook ? "a hook" : "no hook") + ", Average::" + std::string(name_of(options.average)) +
        (options.rebuild && !options.plan ? ", rebuild" : "") + (options.find_unused ? ", find_unused" : "") +
        (options.check_every_step ? ", check_every_step" : ""));
    for (std::size_t i = 0; i < params.size(); ++i) items.push_back(describe(i, params[i]));
    return items;
}

/// Buckets first: the first item that differs is the first bucket that holds more or less, or else the first place of a
/// gradient.
std::vector<std::string> describe(const BucketPlan& plan, const std::vector<ParamSpec>& params) {
    std::vector<std::string> items;
    items.reserve(plan.buckets.size() + params.size());
    for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
        const BucketPlan::Bucket& bucket = plan.buckets[b];
        items.push_back("bucket " + std::to_string(b) + " with " + std::to_string(bucket.slots.size()) +
                        (bucket.slots.size() == 1 ? " parameter in " : " parameters in ") +
                        std::to_string(bucket.bytes) + " bytes of " + std::string(to_string(bucket.dtype)) +
                        ", the first of them " +
                        describe(bucket.slots.front().param, params[bucket.slots.front().param]));
    }
    for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
        for (const BucketPlan::Slot& slot : plan.buckets[b].slots) {
            items.push_back(describe(slot.param, params[slot.param]) + " at byte " + std::to_string(slot.offset_bytes) +
                            " of bucket " + std::to_string(b));
        }
    }
    return items;
}

void check_uses(const std::vector<ParamSpec>& params) {
    for (std::size_t i = 0; i < params.size(); ++i) {
        if (params[i].uses < 1)
            refuse(describe(i, params[i]) + ": uses is " + std::to_string(params[i].uses) + ", at least 1 is needed");
    }
}

/// All that can be said against them without the peers.
BucketPlan checked_plan(const std::vector<ParamSpec>& params, const ReducerOptions& options) {
    check_uses(params);
    BucketPlan plan = options.plan ? *options.plan : plan_buckets(params, options.limits);
    check_plan(plan, params);
    return plan;
}

}  // namespace

GradientReducer::Impl::Impl(ProcessGroup& parent, std::vector<ParamSpec> params, ReducerOptions options)
    : specs_(std::move(params)), options_(std::move(options)), may_rebuild_(options_.rebuild && !options_.plan) {
    if (parent.backend() != Backend::Native) {
        refuse(
            "GradientReducer works on native groups so far: pass {.backend = ddp::Backend::Native} to init_from_env");
    }
    group_ = parent.split(0, parent.rank(), "reducer");
    divisor_ = group_->size();
    BucketPlan plan = agree_on_plan();
    or_fail([&] {
        timeline_ = detail::Timeline::from_environment(group_->impl_->world_rank());
        if (timeline_) timeline_row_ = timeline_->add_row();
        storage_.emplace(group_->arena(), specs_, std::move(plan), options_.limits.align_bytes);
        params_.resize(specs_.size());
        if (finishes_aside()) finisher_.emplace([this](std::size_t b) { finish_bucket_aside(b); });
        make_buckets();  // last, for now the hook is bound to us
    });
}

GradientReducer::Impl::~Impl() {
    {
        const std::lock_guard lock(mutex_);
        if (in_backward()) {
            group_->abort(std::uncaught_exceptions() > 0
                              ? "an exception ended its backward, and its own output says which"
                              : "its GradientReducer was destroyed in the middle of a backward");
        }
    }
    finisher_.reset();  // it may have waited for a bucket that peers never complete, and uses memory of the group's
    if (options_.hook) options_.hook->release();
}

/// What only one rank has to complain of is told to all, who would wait for it otherwise.
BucketPlan GradientReducer::Impl::agree_on_plan() {
    std::vector<std::string> items = describe(specs_, options_);
    BucketPlan plan;
    std::exception_ptr refusal;
    try {
        plan = checked_plan(specs_, options_);
    } catch (const Error& error) {
        refusal = std::current_exception();
        items.insert(items.begin(), error.what());
    }
    detail::require_agreement(*group_, "the reducer's parameters or options", items);
    if (refusal) std::rethrow_exception(refusal);
    // Without a plan from elsewhere this differs only if the nodes run different versions of this library.
    detail::require_agreement(*group_, "the bucket plan", describe(plan, specs_),
                              "Pass the same ReducerOptions::plan on every rank, or none on any.");
    return plan;
}

void GradientReducer::Impl::make_buckets() {
    buckets_.assign(plan().buckets.size(), {});
    next_bucket_ = 0;
    for (std::size_t b = 0; b < buckets_.size(); ++b) buckets_[b].tag = "bucket " + std::to_string(b);
    if (options_.hook) options_.hook->prepare(*group_, plan());
}

/// Collective: all ranks follow the order of rank 0, once it has one: not while it only shadows others' steps.
void GradientReducer::Impl::rebuild() {
    std::vector<std::uint64_t> order(ready_order_.begin(), ready_order_.end());
    order.resize(specs_.size(), specs_.size());  // which is no parameter
    group_->broadcast(buffer(std::span(order)), 0, {}, {.timeout = {}, .tag = "ready order"}).wait();
    may_rebuild_ = std::ranges::find(order, specs_.size()) != order.end();
    if (may_rebuild_) return;
    BucketPlan anew = plan_buckets(specs_, options_.limits, std::vector<std::size_t>(order.begin(), order.end()));
    if (anew == plan()) return;
    storage_->lay_out(std::move(anew));
    make_buckets();
}

void GradientReducer::Impl::agree_on_step(bool sync) {
    const std::vector<std::string> step{sync ? "one with sync" : "one without sync"};
    detail::require_agreement(*group_, "the backward after " + std::to_string(stats_.steps) + " synchronised ones",
                              step, "begin_backward and no_sync() have to be used alike on every rank.");
}

Buffer GradientReducer::Impl::grad(std::size_t i) const {
    check_index(i);
    return storage_->gradient(i);
}

void GradientReducer::Impl::bind(std::size_t i, Buffer external) {
    check_index(i);
    const Buffer& view = storage_->view(i);
    if (external.count != view.count || external.dtype != view.dtype || external.device != Device::Cpu)
        refuse("bind: parameter '" + specs_[i].name + "' needs " + std::string(to_string(view.dtype)) + "[" +
               std::to_string(view.count) + "] in host memory, not " + std::string(to_string(external.dtype)) + "[" +
               std::to_string(external.count) + "]");
    if (external.data == nullptr && external.count > 0)
        refuse("bind: parameter '" + specs_[i].name + "' got no memory");
    const std::lock_guard lock(mutex_);
    if (in_backward()) refuse("bind: parameter '" + specs_[i].name + "' cannot be bound in the middle of a backward");
    if (has_accumulated_)
        refuse("bind: parameter '" + specs_[i].name +
               "' has gathered gradients in backwards without sync, which would be lost. Bind it before the first of "
               "them");
    storage_->bind(i, external);
}

void GradientReducer::Impl::set_no_sync(int change) { no_sync_guards_ += change; }

void GradientReducer::Impl::shadow(bool sync) {
    announce(sync);
    begin(sync);
    for (std::size_t i = specs_.size(); i-- > 0;) mark(i, true);
    finish();
    ready_order_.clear();  // nobody's backward goes like this
}

void GradientReducer::Impl::divide_by(int ranks) { divisor_ = ranks; }

void GradientReducer::Impl::sync_parameters(std::span<const Buffer> params, int root) {
    detail::broadcast_in_pieces(*group_, params, root, "parameters");
}

void GradientReducer::Impl::verify_parameters(std::span<const Buffer> params) {
    std::vector<std::string> items;
    const bool complete = params.size() == specs_.size();
    if (!complete) {
        items.push_back("verify_parameters: " + std::to_string(params.size()) + " buffers for " +
                        std::to_string(specs_.size()) + " parameters");
    }
    for (std::size_t i = 0; complete && i < params.size(); ++i) {
        detail::Fnv64 fnv;
        fnv.add({static_cast<const char*>(params[i].data), params[i].bytes()});
        char hash[24];
        std::snprintf(hash, sizeof hash, "0x%016" PRIx64, fnv.value());
        items.push_back(describe(i, specs_[i]) + " whose bits have the hash " + hash);
    }
    detail::require_agreement(*group_, "the values of the parameters", items,
                              "Call sync_parameters before training, and update every parameter alike on every rank.");
    if (!complete) refuse(items.front());  // on every rank
}

std::vector<bool> GradientReducer::Impl::used_anywhere() {
    constexpr std::size_t kBits = 64;
    std::vector<std::uint64_t> words((params_.size() + kBits - 1) / kBits, 0);
    for (std::size_t i = 0; i < params_.size(); ++i) words[i / kBits] |= std::uint64_t{params_[i].used} << (i % kBits);
    group_->all_reduce(buffer(std::span(words)), ReduceOp::BOr, {}, {.timeout = {}, .tag = "used gradients"}).wait();
    std::vector<bool> used(params_.size());
    for (std::size_t i = 0; i < used.size(); ++i) used[i] = (words[i / kBits] >> (i % kBits) & 1) != 0;
    return used;
}

ReducerStats GradientReducer::Impl::stats() const {
    const std::lock_guard lock(mutex_);
    ReducerStats stats = stats_;
    for (std::size_t b = 0; b < next_bucket_; ++b) stats.buckets_done += buckets_[b].work.done() ? 1 : 0;
    return stats;
}

void GradientReducer::Impl::check_index(std::size_t i) const {
    if (i >= specs_.size()) {
        refuse("there is no parameter " + std::to_string(i) + ": " + std::to_string(specs_.size()) +
               " were registered");
    }
}

}  // namespace ddp
