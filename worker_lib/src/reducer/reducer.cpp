// The public interface of a reducer, which forwards every call to GradientReducer::Impl.
#include "ddp/reducer.hpp"

#include <utility>

#include "worker_lib/src/reducer/impl.hpp"
#include "worker_lib/src/reducer/refuse.hpp"

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
void GradientReducer::zero_grads(Stream stream) { impl_->zero_grads(stream); }
void GradientReducer::bind(std::size_t i, Buffer external) { impl_->bind(i, external); }
void GradientReducer::begin_backward(bool sync, Stream stream) { impl_->begin(sync, stream); }
void GradientReducer::mark_ready(std::size_t i, Stream stream) { impl_->mark(i, false, stream); }
void GradientReducer::mark_unused(std::size_t i, Stream stream) { impl_->mark(i, true, stream); }
BackwardResult GradientReducer::finish_backward(Stream stream) { return impl_->finish(stream); }
CapturedStep GradientReducer::capture(Stream stream, const std::function<void()>& step) {
    return CapturedStep(impl_->capture(stream, step));
}
void GradientReducer::replay(const CapturedStep& step, Stream stream) {
    if (step.state_ == nullptr) detail::refuse("replay: the CapturedStep is empty, or has been moved from");
    impl_->replay(*step.state_, stream);
}
void GradientReducer::sync_parameters(List<Buffer> params, int root, Stream stream) {
    impl_->sync_parameters(params.elements(), root, stream);
}
void GradientReducer::verify_parameters(List<Buffer> params, Stream stream) {
    impl_->verify_parameters(params.elements(), stream);
}
Buffer GradientReducer::step_ok() const { return impl_->step_ok(); }
const BucketPlan& GradientReducer::plan() const { return impl_->plan(); }
ReducerStats GradientReducer::stats() const { return impl_->stats(); }

}  // namespace ddp
