#include "worker_lib/src/reducer/low_rank_exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "worker_lib/src/group/agreement.hpp"
#include "worker_lib/src/group/broadcast_in_pieces.hpp"
#include "worker_lib/src/reducer/refuse.hpp"
#include "worker_lib/src/reducer/values.hpp"
#include "worker_lib/src/util/float_environment.hpp"

namespace ddp::detail {
namespace {

MatrixShape shape_of(const ParamSpec& spec, const PowerSgdOptions& options) {
    if (spec.shape.size() < 2 || spec.dtype != DType::F32 || spec.count == 0) return {};
    const std::size_t rows = spec.shape[0];
    const std::size_t columns = spec.count / rows;
    const std::size_t rank = std::min({rows, columns, static_cast<std::size_t>(options.rank)});
    const double sent = static_cast<double>((rows + columns) * rank);
    if (!(sent * options.min_compression_rate < static_cast<double>(spec.count))) return {};
    return {rows, columns, rank};
}

void check(const ParamSpec& spec) {
    if (spec.shape.empty()) return;
    std::size_t count = 1;
    for (const std::size_t size : spec.shape) count *= size;
    if (count != spec.count)
        refuse(fmt::format("PowerSgd: parameter '{}' has the shape [{}], which is not of its {} elements", spec.name,
                           fmt::join(spec.shape, ", "), spec.count));
}

void check(const PowerSgdOptions& options) {
    if (options.rank < 1) refuse(fmt::format("PowerSgd: the rank is {}. At least 1 is needed", options.rank));
    if (!(options.min_compression_rate >= 1))
        refuse(fmt::format("PowerSgd: min_compression_rate is {}. At least 1 is needed", options.min_compression_rate));
}

/// Returns a number that follows from the three alone, with mean 0 and variance 1: a sum of twelve numbers from 0 to 1,
/// less 6. Normal enough, and without functions that differ between C libraries.
float random_number(std::uint64_t seed, std::size_t param, std::size_t index) {
    constexpr std::uint64_t kFirst = 0x9e3779b97f4a7c15, kSecond = 0xbf58476d1ce4e5b9, kThird = 0x94d049bb133111eb;
    float sum = -6;
    for (std::uint64_t draw = 0; draw < 12; ++draw) {
        std::uint64_t bits = ((seed * 0x100000001b3 + param) * 0x100000001b3 + index) * 12 + draw;
        bits = (bits + 1) * kFirst;  // SplitMix64
        bits = (bits ^ (bits >> 30)) * kSecond;
        bits = (bits ^ (bits >> 27)) * kThird;
        bits ^= bits >> 31;
        sum += static_cast<float>(bits >> 40) * 0x1p-24f;
    }
    return sum;
}

}  // namespace

LowRankExchange::LowRankExchange(std::vector<ParamSpec> params, PowerSgdOptions options)
    : specs_(std::move(params)), options_(options), params_(specs_.size()) {
    check(options_);
    for (std::size_t i = 0; i < params_.size(); ++i) {
        check(specs_[i]);
        params_[i].shape = shape_of(specs_[i], options_);
        if (params_[i].shape.rank == 0) continue;
        params_[i].residual.resize(specs_[i].count);
        params_[i].right.resize(params_[i].shape.right());
        start_factor(i, 0);
    }
}

void LowRankExchange::start_factor(std::size_t param, std::uint64_t draw) {
    const ScopedFloatEnvironment floats;
    std::vector<float>& right = params_[param].right;
    for (std::size_t i = 0; i < right.size(); ++i) right[i] = random_number(options_.seed + draw, param, i);
}

/// Keeps the right factor for the next step. A column of zeros would stay zero for ever, because the left factor's
/// column follows from it: it begins again with random numbers, the same on all ranks.
void LowRankExchange::keep_factor(std::size_t param, std::span<const float> right) {
    start_factor(param, steps_ + 1);
    if (!options_.warm_start) return;
    const std::size_t columns = params_[param].shape.columns;
    for (std::size_t k = 0; k < right.size(); k += columns) {
        const std::span<const float> column = right.subspan(k, columns);
        if (std::ranges::any_of(column, [](float value) { return value != 0; }))
            std::ranges::copy(column, params_[param].right.begin() + static_cast<std::ptrdiff_t>(k));
    }
}

void LowRankExchange::set_right(std::size_t param, std::span<const float> right) {
    std::ranges::copy(right, params_[param].right.begin());
}

void LowRankExchange::prepare(ProcessGroup& group, const BucketPlan& plan) {
    if (group_ != nullptr && group_ != &group)
        refuse(
            fmt::format("PowerSgd: one hook was passed to two reducers, of the groups '{}' and '{}'. Make one for each",
                        group_->name(), group.name()));
    if (group_ == nullptr) release();  // what a reducer has left whose construction failed
    agree(group);
    share_state(group);
    const std::array<std::size_t, 2> needed = memory_needed(plan);
    if (options_.between_nodes && !nodes_) nodes_.emplace(group);
    exchanging_ = nodes_ ? nodes_->between() : &group;
    for (std::size_t k = 0; exchanging_ != nullptr && k < needed.size(); ++k) {
        if (needed[k] > memory_[k].size()) memory_[k] = exchanging_->arena().allocate<float>(needed[k]);
    }
    if (exchanging_ != nullptr) own_right_.resize(std::max(own_right_.size(), needed[1]));
    group_ = &group;  // last: a reducer whose construction fails never calls release()
}

/// Collective. Gives all ranks rank 0's factors and number of steps, which an exchange that failed on some ranks alone
/// has left different.
void LowRankExchange::share_state(ProcessGroup& group) {
    std::vector<Buffer> state{steps_};
    for (Param& param : params_) {
        if (!param.right.empty()) state.emplace_back(param.right);
    }
    broadcast_in_pieces(group, state, 0, "factors");
}

/// Returns how many elements the left and the right factors of any bucket have at most.
std::array<std::size_t, 2> LowRankExchange::memory_needed(const BucketPlan& plan) const {
    std::array<std::size_t, 2> needed{};
    for (const BucketPlan::Bucket& bucket : plan.buckets) {
        std::array<std::size_t, 2> sizes{};
        for (const auto& [param, offset] : bucket.slots) {
            if (param >= params_.size() || specs_[param].dtype != bucket.dtype)
                refuse("PowerSgd: its parameters are not those of the reducer. Pass the same list to both");
            const MatrixShape& shape = params_[param].shape;
            sizes[0] += shape.rank > 0 ? shape.left() : specs_[param].count;
            sizes[1] += shape.right();
        }
        for (std::size_t k = 0; k < needed.size(); ++k) needed[k] = std::max(needed[k], sizes[k]);
    }
    return needed;
}

void LowRankExchange::abort(std::string_view reason) {
    if (nodes_) nodes_->abort(reason);
}

void LowRankExchange::release() {
    group_ = exchanging_ = nullptr;
    memory_ = {};
    nodes_.reset();
}

/// Collective. Throws Error{Mismatch} unless all ranks have the same options and shapes.
void LowRankExchange::agree(ProcessGroup& group) const {
    std::vector<std::string> items{
        fmt::format("rank {}, start_step {}, min_compression_rate {}, warm_start {}, error_feedback {}, settle_every "
                    "{}, between_nodes {}, seed {}",
                    options_.rank, options_.start_step, options_.min_compression_rate, options_.warm_start,
                    options_.error_feedback, options_.settle_every, options_.between_nodes, options_.seed)};
    for (const ParamSpec& spec : specs_)
        items.push_back(
            fmt::format("'{}' of {} elements, shape [{}]", spec.name, spec.count, fmt::join(spec.shape, ", ")));
    require_agreement(group, "the options or shapes of PowerSgd", items);
}

/// Returns whether gradients of the bucket are compressed, from start_step on.
bool LowRankExchange::has_matrices(const GradBucket& bucket) const {
    return !(nodes_ && nodes_->nodes() == 1) &&
           std::ranges::any_of(bucket.gradients, [this](const Gradient& one) { return is_compressed(one); });
}

Work LowRankExchange::all_reduce(std::span<float> values, ReduceOp op, const std::string& label) {
    bytes_sent_.fetch_add(values.size_bytes(), std::memory_order_relaxed);
    return exchanging_->all_reduce(values, op, {.label = label});
}

void LowRankExchange::check_counts(const GradBucket& bucket) const {
    for (const Gradient& gradient : bucket.gradients) {
        const ParamSpec& spec = specs_[gradient.param];
        if (gradient.values.count != spec.count)
            refuse(
                fmt::format("PowerSgd: its parameter {} ('{}') has {} elements, that of the reducer {}. Pass the same "
                            "list to both",
                            gradient.param, spec.name, spec.count, gradient.values.count));
    }
}

void LowRankExchange::complete(const GradBucket& bucket) {
    const ScopedFloatEnvironment floats;
    check_counts(bucket);
    if (nodes_ && has_matrices(bucket))
        average_between_nodes(bucket);
    else if (sends_factors() && has_matrices(bucket))
        average_factors(bucket);
    else
        average_whole(bucket, *group_);
    if (bucket.last) ++steps_;
}

void LowRankExchange::average_whole(const GradBucket& bucket, ProcessGroup& group) {
    bytes_sent_.fetch_add(bucket.buffer.bytes(), std::memory_order_relaxed);
    group.all_reduce(bucket.buffer, ReduceOp::Avg, {.label = fmt::format("bucket {}", bucket.index)}).wait();
}

/// Uses the same groups before and after start_step: ranks of different steps have to meet to find their difference.
void LowRankExchange::average_between_nodes(const GradBucket& bucket) {
    const std::string label = fmt::format("bucket {}", bucket.index);
    nodes_->reduce(bucket.buffer, steps_ + 1, label);
    if (exchanging_ != nullptr) sends_factors() ? average_factors(bucket) : average_whole(bucket, *exchanging_);
    nodes_->broadcast(bucket.buffer, label);
}

void LowRankExchange::average_factors(const GradBucket& bucket) {
    const std::string label = fmt::format("bucket {}", bucket.index);
    const std::uint64_t compressed_steps = steps_ - options_.start_step;
    if (options_.error_feedback && options_.settle_every > 0 && compressed_steps > 0 &&
        compressed_steps % options_.settle_every == 0) {
        for (const Gradient& gradient : bucket.gradients) settle_residual(gradient.param);
    }
    std::span<float> left;
    std::span<float> right;
    const std::vector<Slice> slices = slices_of(bucket, left, right);
    for (const Slice& slice : slices) {
        Param& param = params_[slice.param];
        if (slice.right.empty())
            std::ranges::copy(slice.values, slice.left.begin());
        else
            add_and_multiply(param.shape, slice.values, param.right, param.residual, slice.left);
    }
    all_reduce(left, ReduceOp::Sum, label + " left").wait();
    for (const Slice& slice : slices) {
        if (!slice.right.empty()) project(slice);
    }
    Work exchange_of_right = all_reduce(right, ReduceOp::Avg, label + " right");
    for (const Slice& slice : slices) {
        if (!slice.right.empty()) keep_residual(slice);  // meanwhile
    }
    exchange_of_right.wait();
    for (const Slice& slice : slices) {
        if (slice.right.empty()) {
            std::ranges::copy(slice.left, slice.values.begin());
            scale(slice.values, 1.0 / exchanging_->size());
        } else {
            set_to_product(params_[slice.param].shape, slice.left, slice.right, slice.values);
            keep_factor(slice.param, slice.right);
            if (!std::isfinite(slice.left[0])) drop(slice.param);
        }
    }
}

/// Divides the memory for factors among the gradients of a bucket. `left`, `right`: get what all of them use.
std::vector<LowRankExchange::Slice> LowRankExchange::slices_of(const GradBucket& bucket, std::span<float>& left,
                                                               std::span<float>& right) {
    std::vector<Slice> slices;
    std::size_t p = 0;
    std::size_t q = 0;
    for (const Gradient& gradient : bucket.gradients) {
        const MatrixShape& shape = params_[gradient.param].shape;
        const std::size_t count = is_compressed(gradient) ? shape.left() : gradient.values.count;
        slices.push_back({gradient.param, gradient.values.as<float>(), memory_[0].subspan(p, count),
                          memory_[1].subspan(q, shape.right()), std::span(own_right_).subspan(q, shape.right())});
        p += count;
        q += shape.right();
    }
    left = memory_[0].first(p);
    right = memory_[1].first(q);
    return slices;
}

/// Makes the left factor orthonormal, and sets this rank's right one.
void LowRankExchange::project(const Slice& slice) {
    Param& param = params_[slice.param];
    // The left factors have the same bits on all ranks, so all find the same ones that are not finite.
    if (!orthonormalise(param.shape, slice.left))
        std::ranges::fill(slice.left, std::numeric_limits<float>::quiet_NaN());
    multiply_transposed(param.shape, param.residual, slice.left, slice.right);
    std::ranges::copy(slice.right, slice.own_right.begin());  // for keep_residual(): the other is averaged meanwhile
}

/// Takes the product of this rank's factors from gradient + residual.
void LowRankExchange::keep_residual(const Slice& slice) {
    Param& param = params_[slice.param];
    if (options_.error_feedback)
        subtract_product(param.shape, slice.left, slice.own_right, param.residual);
    else
        std::ranges::fill(param.residual, 0.0f);
}

/// Starts again with a parameter whose gradient was not finite.
void LowRankExchange::drop(std::size_t param) {
    std::ranges::fill(params_[param].residual, 0.0f);
    start_factor(param, steps_ + 1);
}

void LowRankExchange::settle_residual(std::size_t param) {
    std::vector<float>& residual = params_[param].residual;
    if (!residual.empty() && exchanging_ != nullptr)
        all_reduce(residual, ReduceOp::Avg, "residual of " + specs_[param].name).wait();
}

void LowRankExchange::settle() {
    if (group_ == nullptr) refuse("PowerSgd::settle: it has no reducer. Pass the hook to one first");
    for (std::size_t i = 0; i < params_.size(); ++i) settle_residual(i);
}

std::vector<NamedBuffer> LowRankExchange::state(std::string_view prefix) {
    const std::string begin = prefix.empty() ? "" : fmt::format("{}.", prefix);
    std::vector<NamedBuffer> state{{begin + "steps", steps_}};
    for (std::size_t i = 0; i < params_.size(); ++i) {
        if (params_[i].shape.rank == 0) continue;
        state.push_back({fmt::format("{}{}.right", begin, i), params_[i].right});
        state.push_back({fmt::format("{}{}.residual", begin, i), params_[i].residual});
    }
    return state;
}

}  // namespace ddp::detail
