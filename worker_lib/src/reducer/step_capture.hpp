#pragma once
// StepCapture: captures a whole step of a reducer into a CUDA graph, and replays it as one operation of the reducer's
// group. It knows whether a capture is going on, and what one may contain. The reducer's owner thread.
//
// See docs/design/040-captured-steps.md.

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "ddp/process_group.hpp"
#include "worker_lib/src/cuda/captured_graph.hpp"
#include "worker_lib/src/reducer/device_gradients.hpp"

namespace ddp::detail {

class StepCapture {
public:
    /// Both must outlive it.
    StepCapture(ProcessGroup& group, DeviceGradients& memory) : group_(group), memory_(memory) {}
    StepCapture(const StepCapture&) = delete;
    StepCapture& operator=(const StepCapture&) = delete;

    /// Throws Error{InvalidArgument} if the stream is a default stream, or another reducer has a captured step.
    void check(Stream stream);
    /// Runs `step`, which makes one backward, while its streams are captured. Throws its exception, Error{System} when
    /// CUDA makes no graph of it, and Error{InvalidArgument} without a backward.
    [[nodiscard]] std::shared_ptr<CapturedGraph> run(Stream stream, const std::function<void()>& step);
    [[nodiscard]] bool is_running() const { return is_running_; }
    /// Takes note of a backward that begins. Throws Error{InvalidArgument} if it cannot be in the capture that is
    /// running, which stays valid.
    void begin_backward(bool sync);
    /// Launches the graph behind the work of `stream`, which goes on behind the graph.
    void replay(const CapturedGraph& graph, Stream stream);

private:
    ProcessGroup& group_;
    DeviceGradients& memory_;
    bool is_running_ = false;
    bool has_backward_ = false;
};

}  // namespace ddp::detail
