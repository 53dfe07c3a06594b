// The public interface, which forwards every call to ShardedParameters::Impl; and units_by_size.
#include <exception>
#include <utility>

#include "ddp/sharding.hpp"
#include "worker_lib/src/reducer/refuse.hpp"
#include "worker_lib/src/sharding/impl.hpp"

namespace ddp {

ShardedParameters::Scope::Scope(Impl& impl, std::size_t unit, bool with_grad)
    : impl_(&impl), unit_(unit), with_grad_(with_grad), exceptions_(std::uncaught_exceptions()) {}
ShardedParameters::Scope::Scope(Scope&& other) noexcept
    : impl_(std::exchange(other.impl_, nullptr)),
      unit_(other.unit_),
      with_grad_(other.with_grad_),
      exceptions_(other.exceptions_) {}
ShardedParameters::Scope::~Scope() {
    if (impl_ != nullptr) impl_->close(unit_, with_grad_, std::uncaught_exceptions() > exceptions_);
}
ConstBuffer ShardedParameters::Scope::param(std::size_t i) const { return impl_->param(unit_, i); }
Buffer ShardedParameters::GradScope::grad(std::size_t i) const { return impl_->grad(unit_, i); }

ShardedParameters::ShardedParameters(ProcessGroup& group, std::vector<std::vector<ParamSpec>> units,
                                     ShardOptions options)
    : impl_(std::make_unique<Impl>(group, std::move(units), std::move(options))) {}
ShardedParameters::~ShardedParameters() {
    // In a child of fork() the threads of the groups are the parent's. So its memory leaks here.
    if (impl_ && impl_->is_elsewhere()) static_cast<void>(impl_.release());
}
ShardedParameters::ShardedParameters(ShardedParameters&&) noexcept = default;

void ShardedParameters::fill(const std::function<void(std::size_t, std::size_t, Buffer)>& values) {
    impl_->fill(values);
}
void ShardedParameters::changed() { impl_->changed(); }
ShardedParameters::Scope ShardedParameters::forward(std::size_t unit) {
    impl_->open(unit);
    return {*impl_, unit, false};
}
void ShardedParameters::begin_backward(Reduce reduce) { impl_->begin_backward(reduce); }
ShardedParameters::GradScope ShardedParameters::backward(std::size_t unit) {
    impl_->open_with_grad(unit);
    return {*impl_, unit, true};
}
void ShardedParameters::finish_backward() { impl_->finish_backward(); }
double ShardedParameters::clip(double max_norm) { return impl_->clip(max_norm); }
std::span<const Shard> ShardedParameters::shards() const { return impl_->shards(); }
std::size_t ShardedParameters::size() const { return impl_->size(); }
const ShardPlan& ShardedParameters::plan() const { return impl_->plan(); }
void ShardedParameters::whole(std::size_t param, Buffer out, int root) { impl_->whole(param, out, root); }
std::vector<NamedShard> ShardedParameters::state(std::string_view suffix, Buffer parallel) const {
    return impl_->state(suffix, parallel);
}

std::vector<std::vector<ParamSpec>> units_by_size(List<ParamSpec> params, std::size_t elements) {
    if (elements == 0) detail::refuse("units_by_size: a unit of 0 elements. Pass at least 1");
    std::vector<std::vector<ParamSpec>> units;
    std::size_t filled = elements;
    for (const ParamSpec& param : params.elements()) {
        if (filled >= elements) {
            units.emplace_back();
            filled = 0;
        }
        units.back().push_back(param);
        filled += param.count;
    }
    return units;
}

}  // namespace ddp
