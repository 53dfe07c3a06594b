// The public interface of a reducer, which forwards every call to GradientReducer::Impl.
#include "ddp/reducer.hpp"

#include <utility>

#include "worker_lib/src/reducer/impl.hpp"

namespace ddp {

GradientReducer::NoSync::NoSync(GradientReducer& reducer) : reducer_(*reducer.impl_) {
    reducer_.next().add_no_sync_guards(+1);
}
GradientReducer::NoSync::~NoSync() { reducer_.next().add_no_sync_guards(-1); }

GradientReducer::GradientReducer(ProcessGroup& group, std::vector<ParamSpec> params, ReducerOptions options)
    : impl_(std::make_unique<Impl>(group, std::move(params), std::move(options))) {}
GradientReducer::~GradientReducer() {
    // In a child of fork() the threads that Impl would join are the parent's. So its memory leaks here.
    if (impl_ && impl_->is_elsewhere()) static_cast<void>(impl_.release());
}
GradientReducer::GradientReducer(GradientReducer&&) noexcept = default;

Buffer GradientReducer::grad(std::size_t i) { return impl_->grad(i); }
Buffer GradientReducer::grad(std::size_t i, DType type) { return impl_->grad(i, type); }
void GradientReducer::zero_grads() { impl_->zero_grads(); }
void GradientReducer::bind(std::size_t i, Buffer external) { impl_->bind(i, external); }
void GradientReducer::begin_backward(bool sync) { impl_->begin(sync); }
void GradientReducer::mark_ready(std::size_t i) { impl_->mark(i, false); }
void GradientReducer::mark_unused(std::size_t i) { impl_->mark(i, true); }
BackwardResult GradientReducer::finish_backward() { return impl_->finish(); }
void GradientReducer::sync_parameters(List<Buffer> params, int root) {
    impl_->sync_parameters(params.elements(), root);
}
void GradientReducer::verify_parameters(List<Buffer> params) { impl_->verify_parameters(params.elements()); }
const BucketPlan& GradientReducer::plan() const { return impl_->plan(); }
ReducerStats GradientReducer::stats() const { return impl_->stats(); }

}  // namespace ddp
