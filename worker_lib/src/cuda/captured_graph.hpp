#pragma once
// StreamCapture makes a CUDA graph of what is enqueued while it lasts, a CapturedGraph. CapturedGraphs are those of one
// group, which frees them before its communicator: NCCL does not end one while a graph holds its operations.
//
// See docs/design/040-captured-steps.md.

#include <memory>
#include <vector>

#include "common/mutex.hpp"
#include "worker_lib/src/cuda/group_device.hpp"

namespace ddp::detail {

/// Owns a graph that can be launched. Any thread.
class CapturedGraph {
public:
    CapturedGraph(std::shared_ptr<GroupDevice> device, CUgraphExec instance)
        : device_(std::move(device)), instance_(instance) {}
    ~CapturedGraph() { free(); }
    CapturedGraph(const CapturedGraph&) = delete;
    CapturedGraph& operator=(const CapturedGraph&) = delete;

    /// Returns null after free().
    [[nodiscard]] CUgraphExec instance() const EXCLUDES(mutex_);
    /// Frees the graph; one that the device works on, when that has ended. Does not wait.
    void free() EXCLUDES(mutex_);

private:
    const std::shared_ptr<GroupDevice> device_;
    mutable ddprun::Mutex mutex_;
    CUgraphExec instance_ GUARDED_BY(mutex_);
};

/// The graphs that hold operations of one group. Any thread.
class CapturedGraphs {
public:
    void add(const std::shared_ptr<CapturedGraph>& graph) EXCLUDES(mutex_);
    [[nodiscard]] bool empty() const EXCLUDES(mutex_);
    /// Frees them, and each that is added later: the communicator may have been aborted during its capture.
    void free_all() EXCLUDES(mutex_);

private:
    mutable ddprun::Mutex mutex_;
    std::vector<std::weak_ptr<CapturedGraph>> graphs_ GUARDED_BY(mutex_);
    bool is_over_ GUARDED_BY(mutex_) = false;
};

/// Captures what is enqueued on one stream, and on streams that wait for it, from its construction to end(). One
/// thread. Other threads may make any call of CUDA meanwhile.
class StreamCapture {
public:
    /// Throws Error{System} if CUDA refuses the stream.
    StreamCapture(std::shared_ptr<GroupDevice> device, CUstream stream);
    /// Drops the capture, if end() has not been called.
    ~StreamCapture();
    StreamCapture(const StreamCapture&) = delete;
    StreamCapture& operator=(const StreamCapture&) = delete;

    /// Returns the graph. Throws Error{System} if a call has made the capture invalid, or a stream has not joined it
    /// again.
    [[nodiscard]] std::shared_ptr<CapturedGraph> end();

private:
    [[nodiscard]] CUgraph end_capture(CUresult& result);

    const std::shared_ptr<GroupDevice> device_;
    CUstream stream_;  ///< null from end() on
};

}  // namespace ddp::detail
