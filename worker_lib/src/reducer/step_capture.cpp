#include "worker_lib/src/reducer/step_capture.hpp"

#include <cstdint>
#include <string>
#include <utility>

#include "worker_lib/src/group/group_impl.hpp"
#include "worker_lib/src/reducer/refuse.hpp"

namespace ddp::detail {

StepCapture::Span::Span(BackendImpl& backend, Stream exchange) : backend_(backend) { backend.capture_on(exchange); }
StepCapture::Span::~Span() { backend_.capture_on({}); }

StepCapture::Span StepCapture::begin(Stream stream) {
    if (reinterpret_cast<std::uintptr_t>(stream.handle) <= kLastReservedStream)
        refuse("capture: it needs a stream of its own, not a default stream. Make one with cudaStreamNonBlocking");
    return {GroupImpl::of(group_).backend(), memory_.stream()};
}

std::shared_ptr<CapturedGraph> StepCapture::run(Stream stream, const std::function<void()>& step) {
    /// Ends also by an exception.
    struct Running {
        explicit Running(StepCapture& owner) : capture(owner) {
            capture.is_running_ = true;
            capture.memory_.set_captured(true);
        }
        ~Running() {
            capture.is_running_ = false;
            capture.memory_.set_captured(false);
        }
        Running(const Running&) = delete;
        Running& operator=(const Running&) = delete;
        StepCapture& capture;
    };
    has_begun_ = has_ended_ = false;
    thread_ = std::this_thread::get_id();
    StreamCapture capture(memory_.device(), static_cast<CUstream>(stream.handle));
    {
        const Running running(*this);
        step();
    }
    if (!has_ended_) {
        refuse(has_begun_ ? "capture: the function has not ended its backward. Call finish_backward in it"
                          : "capture: the function has made no backward. It has to call begin_backward, mark_ready for "
                            "each gradient, and finish_backward");
    }
    auto graph = capture.end();
    GroupImpl::of(group_).backend().share(graph);
    return graph;
}

void StepCapture::check_backward(bool sync) const {
    if (!is_running_) return;
    if (!sync)
        refuse(
            "begin_backward: a captured step has one backward, which synchronises. Make those without sync outside of "
            "capture(), and do not replay between them");
    if (has_begun_) refuse("begin_backward: a captured step has one backward, and this is the second");
}

void StepCapture::check_thread(std::string_view call) const {
    if (!is_running_ || std::this_thread::get_id() == thread_) return;
    refuse(std::string(call) +
           ": in capture() one thread makes all calls and enqueues all work, the one that has "
           "called it");
}

void StepCapture::replay(const CapturedGraph& graph, Stream stream) {
    for (; in_flight_.size() >= kMaxInFlight; in_flight_.pop_front()) in_flight_.front().wait_host();
    Operation operation;
    operation.kind = OpKind::kReplay;
    operation.graph = graph.instance();
    auto& group = GroupImpl::of(group_);
    in_flight_.push_back(group.submit(std::move(operation), {.label = "captured step", .stream = stream}));
    in_flight_.back().wait();
}

}  // namespace ddp::detail
