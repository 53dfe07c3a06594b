#pragma once
// StepCapture: captures a whole step of a reducer into a CUDA graph, and replays it as one operation of the reducer's
// group. It knows whether a capture is going on, and what one may contain. The reducer's owner thread, but check().
//
// See docs/design/040-captured-steps.md.

#include <deque>
#include <functional>
#include <memory>
#include <string_view>
#include <thread>

#include "ddp/process_group.hpp"
#include "worker_lib/src/cuda/captured_graph.hpp"
#include "worker_lib/src/reducer/device_gradients.hpp"

namespace ddp::detail {

class BackendImpl;

class StepCapture {
public:
    /// Both must outlive it.
    StepCapture(ProcessGroup& group, DeviceGradients& memory) : group_(group), memory_(memory) {}
    StepCapture(const StepCapture&) = delete;
    StepCapture& operator=(const StepCapture&) = delete;

    /// The time in which the group's exchanges become part of a graph.
    class Span {
    public:
        ~Span();
        Span(const Span&) = delete;
        Span& operator=(const Span&) = delete;

    private:
        friend class StepCapture;
        Span(BackendImpl& backend, Stream exchange);
        BackendImpl& backend_;
    };
    /// Throws Error{InvalidArgument} if the stream is a default stream, or another reducer of the device has a captured
    /// step. The result has to live until the graph is made, or dropped.
    [[nodiscard]] Span begin(Stream stream);
    /// Runs `step`, which makes one backward, while its streams are captured. Throws its exception, Error{System} when
    /// CUDA makes no graph of it, and Error{InvalidArgument} unless it has made one whole backward.
    [[nodiscard]] std::shared_ptr<CapturedGraph> run(Stream stream, const std::function<void()>& step);
    [[nodiscard]] bool is_running() const { return is_running_; }

    // In a capture that is running; else they do nothing. They leave the capture valid.
    /// Throws Error{InvalidArgument} for a backward that cannot be in it.
    void check_backward(bool sync) const;
    /// Throws Error{InvalidArgument} on another thread: two of them would change one graph. Any thread.
    void check_thread(std::string_view call) const;
    void note_begin() { has_begun_ = true; }
    void note_end() { has_ended_ = true; }

    /// Launches the graph behind the work of `stream`, which goes on behind the graph. Waits while kMaxInFlight
    /// replays are in flight.
    void replay(const CapturedGraph& graph, Stream stream);
    /// Counts the replay that `stream` comes to next. Under the reducer's mutex.
    void count_replay(Stream stream) { memory_.end_replay(stream); }

private:
    /// A graph is one entry of the device's queue, so the host could get many steps, and their deadlines, ahead.
    static constexpr std::size_t kMaxInFlight = 4;

    ProcessGroup& group_;
    DeviceGradients& memory_;
    std::thread::id thread_;
    bool is_running_ = false;
    bool has_begun_ = false;
    bool has_ended_ = false;
    std::deque<Work> in_flight_;
};

}  // namespace ddp::detail
