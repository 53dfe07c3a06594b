#include "worker_lib/src/reducer/step_capture.hpp"

#include "worker_lib/src/group/group_impl.hpp"
#include "worker_lib/src/reducer/refuse.hpp"

namespace ddp::detail {

void StepCapture::check(Stream stream) {
    if (reinterpret_cast<std::uintptr_t>(stream.handle) <= kLastReservedStream)
        refuse("capture: CUDA captures no default stream. Pass one that is made with cudaStreamNonBlocking");
    BackendImpl& backend = GroupImpl::of(group_).backend();
    backend.capture_on(memory_.stream());
    backend.capture_on({});
}

std::shared_ptr<CapturedGraph> StepCapture::run(Stream stream, const std::function<void()>& step) {
    BackendImpl& backend = GroupImpl::of(group_).backend();
    /// Ends the capture also when an exception does.
    struct Running {
        Running(StepCapture& owner, BackendImpl& its_backend) : capture(owner), backend(its_backend) {
            backend.capture_on(capture.memory_.stream());
            set(true);
        }
        ~Running() {
            set(false);
            backend.capture_on({});
        }
        Running(const Running&) = delete;
        Running& operator=(const Running&) = delete;
        void set(bool runs) const {
            capture.is_running_ = runs;
            capture.memory_.set_captured(runs);
        }
        StepCapture& capture;
        BackendImpl& backend;
    };
    has_backward_ = false;
    StreamCapture capture(memory_.device(), static_cast<CUstream>(stream.handle));
    {
        const Running running(*this, backend);
        step();
    }
    if (!has_backward_)
        refuse(
            "capture: the function has made no backward. It has to call begin_backward, mark_ready for each "
            "gradient, and finish_backward");
    auto graph = capture.end();
    backend.share(graph);
    return graph;
}

void StepCapture::begin_backward(bool sync) {
    if (!is_running_) return;
    if (!sync)
        refuse(
            "begin_backward: a captured step has one backward, which synchronises. Make those without sync before "
            "the capture, and do not replay between them");
    if (has_backward_) refuse("begin_backward: a captured step has one backward, and this is the second");
    has_backward_ = true;
}

void StepCapture::replay(const CapturedGraph& graph, Stream stream) {
    Operation operation;
    operation.kind = OpKind::kReplay;
    operation.graph = graph.instance();
    GroupImpl::of(group_).submit(std::move(operation), {.label = "captured step", .stream = stream}).wait();
    memory_.end_replay(stream);
}

}  // namespace ddp::detail
