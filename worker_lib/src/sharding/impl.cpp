#include "worker_lib/src/sharding/impl.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#include "common/text/list.hpp"
#include "worker_lib/src/group/group_impl.hpp"
#include "worker_lib/src/recorder/flight_recorder.hpp"
#include "worker_lib/src/reducer/refuse.hpp"
#include "worker_lib/src/reducer/values.hpp"
#include "worker_lib/src/sharding/shard_options.hpp"
#include "worker_lib/src/sharding/shard_plan.hpp"
#include "worker_lib/src/util/error.hpp"
#include "worker_lib/src/util/float_environment.hpp"

namespace ddp {

using detail::refuse;

namespace {

// Of the 65,530 that a process may have by default (vm.max_map_count). A constant: all ranks have to choose the same.
constexpr std::size_t kMaxMappings = 16'384;

template <typename T>
double sum_of_squares(std::span<const T> values) {
    double sum = 0;
    for (const T value : values) sum += double{value} * double{value};
    return sum;
}

}  // namespace

ShardedParameters::Impl::Impl(ProcessGroup& group, std::vector<std::vector<ParamSpec>> units, ShardOptions options)
    : units_(std::move(units)), options_(std::move(options)), rank_(group.rank()), ranks_(group.size()) {
    const detail::ShardTypes types = detail::agree_on_units(group, units_, options_);
    make_groups(group);
    or_fail([&] {
        for (std::size_t u = 0; u < units_.size(); ++u)
            labels_.push_back(fmt::format("unit {} {}", u, units_[u].front().name));
        const Sharding sharding = options_.sharding;
        detail::GatherOptions gathers{types.main, types.gathered, sharding != Sharding::Full, options_.prefetch,
                                      labels_};
        choose_layout(gathers);
        plan_ = detail::plan_memory(layout_, units_, types, options_, !gathers.arenas.empty());
        gathers_.emplace(*gathering_, layout_, std::move(gathers));
        reductions_.emplace(
            *reducing_, replicas_.get(), layout_,
            detail::ReductionOptions{types.main, types.reduced,
                                     sharding == Sharding::Optimizer || sharding == Sharding::None, labels_});
        params_.resize(units_.size());
        grads_.resize(units_.size());
        make_shards();
    });
}

void ShardedParameters::Impl::make_groups(ProcessGroup& group) {
    const bool shards = options_.sharding != Sharding::None;
    const int color = shards ? 0 : rank_;
    gathering_ = group.split(color, rank_, "shard gathers");
    reducing_ = group.split(color, rank_, "shard reductions");
    ProcessGroup* const replicas = shards ? options_.replicas : &group;
    if (replicas != nullptr && replicas->size() > 1) replicas_ = replicas->split(0, replicas->rank(), "shard replicas");
}

void ShardedParameters::Impl::choose_layout(detail::GatherOptions& gathers) {
    const auto ranks = static_cast<std::size_t>(gathering_->size());
    if (options_.mapped) gathers.arenas = detail::GroupImpl::of(*gathering_).backend().arenas();
    // Replicas need equal parts. The group of a replica may have several nodes, or a node with larger pages.
    std::array<std::int64_t, 2> largest{gathers.arenas.empty() ? 1 : 0,
                                        static_cast<std::int64_t>(detail::page_bytes())};
    if (replicas_ != nullptr) replicas_->all_reduce(std::span(largest), ReduceOp::Max, {.label = "pages"}).wait();
    if (largest[0] == 0) {
        const auto page = static_cast<std::size_t>(largest[1]);
        layout_ = detail::lay_out_units(units_, ranks, page / size_of(gathers.gathered));
        if (layout_.filled_parts() <= kMaxMappings) {
            gathers.keep = true;
            return;
        }
    }
    gathers.arenas.clear();
    layout_ = detail::lay_out_units(units_, ranks);
}

void ShardedParameters::Impl::make_shards() {
    for (const detail::ShardLayout::Range& range : layout_.ranges(static_cast<std::size_t>(gathering_->rank()))) {
        const auto part = [&](const Buffer& whole) {
            return Buffer{static_cast<std::byte*>(whole.data) + range.in_part * size_of(whole.dtype), range.count,
                          whole.dtype};
        };
        shards_.push_back(
            {range.param, range.begin, part(gathers_->part(range.unit)), part(reductions_->part(range.unit))});
        size_ += range.count;
    }
}

ShardedParameters::Impl::~Impl() {
    if (!in_backward_ || failure_) return;
    const char* const text = std::uncaught_exceptions() > 0
                                 ? "an exception ended its backward. See its output"
                                 : "its ShardedParameters was destroyed in the middle of a backward";
    for (ProcessGroup* const group : {gathering_.get(), reducing_.get(), replicas_.get()}) {
        if (group != nullptr) group->abort(text);
    }
}

std::string ShardedParameters::Impl::name_of(std::size_t unit) const {
    return fmt::format("unit {} ('{}')", unit, units_[unit].front().name);
}

void ShardedParameters::Impl::show_scope(std::string_view kind, std::size_t unit) const {
    detail::FlightRecorder* const recorder = detail::process_recorder();
    if (recorder != nullptr) recorder->set_default_phase(fmt::format("{} of {}", kind, labels_[unit]));
}

void ShardedParameters::Impl::fail() noexcept {
    if (failure_) return;  // a consequence of the first failure
    failure_ = std::current_exception();
    const std::string text = detail::caught();
    for (ProcessGroup* const group : {gathering_.get(), reducing_.get(), replicas_.get()}) {
        if (group != nullptr) group->abort(text);
    }
}

void ShardedParameters::Impl::check_call(std::string_view call) const {
    if (failure_) std::rethrow_exception(failure_);
    if (gathers_->has_open()) refuse(fmt::format("{}: a scope is open. End it first", call));
}

void ShardedParameters::Impl::check_unit(std::size_t unit, std::string_view call) const {
    if (failure_) std::rethrow_exception(failure_);
    if (unit >= units_.size())
        refuse(fmt::format("{}: there is no unit {}: {} were passed", call, unit, units_.size()));
}

void ShardedParameters::Impl::fill(const std::function<void(std::size_t, std::size_t, Buffer)>& values) {
    check_call("fill");
    if (in_backward_) refuse("fill: a backward is going on. Fill before the first scope");
    changed();
    for (const Shard& shard : shards_) values(shard.param, shard.begin, shard.values);
}

void ShardedParameters::Impl::changed() {
    check_call("changed");
    if (in_backward_) refuse("changed: a backward is going on. Write to shards after finish_backward");
    or_fail([&] { gathers_->changed(); });
}

void ShardedParameters::Impl::open(std::size_t unit) {
    check_unit(unit, "forward");
    show_scope("forward", unit);
    params_[unit] = or_fail([&] { return gathers_->open(unit, in_backward_); });
}

void ShardedParameters::Impl::open_with_grad(std::size_t unit) {
    check_unit(unit, "backward");
    if (!in_backward_) refuse("backward: call begin_backward first");
    if (reductions_->was_opened(unit))
        refuse(fmt::format("backward: {} has had its scope in this backward. Compute all of its gradients in one",
                           name_of(unit)));
    show_scope("backward", unit);
    or_fail([&] {
        params_[unit] = gathers_->open(unit, true);
        grads_[unit] = reductions_->open(unit);
    });
}

void ShardedParameters::Impl::close(std::size_t unit, bool with_grad, bool by_exception) noexcept {
    gathers_->close(unit);
    if (failure_) return;  // the flight record keeps the scope that it came in
    try {
        if (detail::FlightRecorder* const recorder = detail::process_recorder()) recorder->set_default_phase("");
        if (by_exception)
            throw Error(ErrorCode::Aborted, fmt::format("an exception ended the {} scope of {}. See its output",
                                                        with_grad ? "backward" : "forward", name_of(unit)));
        if (with_grad) reductions_->close(unit);
    } catch (...) {
        fail();  // the next call throws it
    }
}

Buffer ShardedParameters::Impl::view(const Buffer& whole, std::size_t unit, std::size_t i) const {
    const auto& slots = layout_.units[unit].slots;
    if (i >= slots.size()) refuse(fmt::format("{} has no parameter {}: it has {}", name_of(unit), i, slots.size()));
    return {static_cast<std::byte*>(whole.data) + slots[i].begin * size_of(whole.dtype), slots[i].count, whole.dtype};
}

Buffer ShardedParameters::Impl::param(std::size_t unit, std::size_t i) const { return view(params_[unit], unit, i); }
Buffer ShardedParameters::Impl::grad(std::size_t unit, std::size_t i) const { return view(grads_[unit], unit, i); }

void ShardedParameters::Impl::begin_backward(Reduce reduce) {
    if (failure_) std::rethrow_exception(failure_);
    if (in_backward_) refuse("begin_backward: the previous backward was not ended by finish_backward");
    in_backward_ = true;
    reduce_ = reduce;
    gathers_->end_pass();
    reductions_->begin(reduce);
}

void ShardedParameters::Impl::check_all_had_gradients() const {
    std::vector<std::string> missing;
    for (std::size_t u = 0; u < units_.size(); ++u) {
        if (!reductions_->was_opened(u)) missing.push_back(name_of(u));
    }
    if (!missing.empty())
        refuse(
            fmt::format("finish_backward: no backward scope was opened for {}. Open one for each unit, and write "
                        "zeros to gradients of parameters that took no part",
                        fmt::join(missing, ", ")));
}

void ShardedParameters::Impl::finish_backward() {
    check_call("finish_backward");
    if (!in_backward_) refuse("finish_backward was called without begin_backward");
    or_fail([&] {
        check_all_had_gradients();
        reductions_->finish();
        gathers_->end_pass();
        if (reduce_ == Reduce::All) gathers_->changed();
    });
    in_backward_ = false;
    ++step_;
    for (ProcessGroup* const group : {gathering_.get(), reducing_.get(), replicas_.get()}) {
        if (group != nullptr) detail::GroupImpl::of(*group).set_step(step_);
    }
}

double ShardedParameters::Impl::clip(double max_norm) {
    check_call("clip");
    if (in_backward_ || reduce_ != Reduce::All)
        refuse("clip: the gradients are not averages yet. Call it after a backward with Reduce::All has finished");
    const detail::ScopedFloatEnvironment floats;
    if (!(max_norm > 0)) refuse(fmt::format("clip: max_norm is {}: expected a positive number", max_norm));
    double squares = 0;
    for (const Shard& shard : shards_)
        squares += shard.grad.dtype == DType::F32 ? sum_of_squares<float>(shard.grad.as<float>())
                                                  : sum_of_squares<double>(shard.grad.as<double>());
    or_fail([&] { reducing_->all_reduce(squares, ReduceOp::Sum, {.label = "norm"}).wait(); });
    const double norm = std::sqrt(squares);
    const double factor = max_norm / (norm + 1e-6);
    if (!std::isfinite(norm) || !(factor < 1)) return norm;
    for (const Shard& shard : shards_) detail::scale(shard.grad, factor);
    return norm;
}

void ShardedParameters::Impl::whole(std::size_t param, Buffer out, int root) {
    check_call("whole");
    if (in_backward_) refuse("whole: a backward is going on. Call it after finish_backward");
    std::size_t unit = 0;
    std::size_t i = param;
    while (unit < units_.size() && i >= units_[unit].size()) i -= units_[unit++].size();
    if (unit == units_.size()) refuse(fmt::format("whole: there is no parameter {}: {} were passed", param, param - i));
    if (root < -1 || root >= ranks_)
        refuse(fmt::format("whole: the root is {}: expected a rank of the group, 0 to {}, or -1 for all", root,
                           ranks_ - 1));
    const Buffer part = gathers_->part(unit);
    const detail::ShardLayout::Slot& slot = layout_.units[unit].slots[i];
    const bool receives = root == -1 || root == rank_;
    if (receives && (out.count != slot.count || out.dtype != part.dtype || out.device != Device::Cpu))
        refuse(fmt::format("whole: parameter '{}' needs {}[{}] in host memory, not {}[{}]{}", units_[unit][i].name,
                           to_string(part.dtype), slot.count, to_string(out.dtype), out.count,
                           out.device == Device::Cpu ? "" : " in device memory"));
    or_fail([&] { gather_whole(unit, slot, receives ? out : Buffer{}, root); });
}

std::vector<NamedShard> ShardedParameters::Impl::state(std::string_view suffix, const Buffer& parallel) const {
    check_call("state");
    const bool is_parallel = parallel.data != nullptr || !suffix.empty();
    if (is_parallel && parallel.count != size_)
        refuse(fmt::format("state: the array '{}' has {} elements: expected {}, as size() returns", suffix,
                           parallel.count, size_));
    std::vector<NamedShard> state;
    auto shard = shards_.begin();
    std::size_t done = 0;  // elements of the shards before it
    for (const auto& unit : units_) {
        for (const ParamSpec& param : unit) {
            const DType dtype = is_parallel ? parallel.dtype : gathers_->part(0).dtype;
            NamedShard& named =
                state.emplace_back(NamedShard{param.name + std::string(suffix),
                                              param.shape.empty() ? std::vector{param.count} : param.shape,
                                              0,
                                              {nullptr, 0, dtype}});
            if (shard == shards_.end() || shard->param + 1 != state.size()) continue;
            named.begin = shard->begin;
            named.part = shard->values;
            if (is_parallel)
                named.part = {static_cast<std::byte*>(parallel.data) + done * size_of(dtype), shard->values.count,
                              dtype, parallel.device};
            done += shard->values.count;
            ++shard;
        }
    }
    return state;
}

void ShardedParameters::Impl::gather_whole(std::size_t unit, const detail::ShardLayout::Slot& slot, Buffer out,
                                           int root) {
    const Buffer part = gathers_->part(unit);
    std::vector<std::size_t> counts;
    for (std::size_t rank = 0; rank < layout_.ranks; ++rank) counts.push_back(layout_.range(unit, slot, rank).count);
    const auto own = layout_.range(unit, slot, static_cast<std::size_t>(gathering_->rank()));
    const ConstBuffer values{static_cast<std::byte*>(part.data) + own.in_part * size_of(part.dtype), own.count,
                             part.dtype};
    const OpOptions label{.label = labels_[unit]};
    if (gathering_->size() == 1) {  // Sharding::None: each rank has all of it
        if (out.count > 0) std::memcpy(out.data, values.data, values.bytes());
    } else if (root == -1) {
        gathering_->all_gather_v(values, out, counts, label).wait();
    } else {
        gathering_->gather_v(values, out, counts, root, label).wait();
    }
}

}  // namespace ddp
