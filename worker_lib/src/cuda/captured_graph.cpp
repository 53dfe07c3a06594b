#include "worker_lib/src/cuda/captured_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ddp/error.hpp"

namespace ddp::detail {

CUgraphExec CapturedGraph::instance() const {
    const ddprun::Lock lock(mutex_);
    return instance_;
}

void CapturedGraph::free() {
    const CUgraphExec instance = [this] {
        const ddprun::Lock lock(mutex_);
        return std::exchange(instance_, nullptr);
    }();
    if (instance == nullptr) return;
    try {
        const DeviceScope scope(*device_);
        (void)device_->cuda().graph_exec_destroy(instance);
    } catch (const Error&) {  // at exit the driver may have been unloaded first
    }
}

void CapturedGraphs::add(const std::shared_ptr<CapturedGraph>& graph) {
    const bool is_over = [&] {
        const ddprun::Lock lock(mutex_);
        std::erase_if(graphs_, [](const auto& known) { return known.expired(); });
        if (!is_over_) graphs_.push_back(graph);
        return is_over_;
    }();
    if (is_over) graph->free();
}

bool CapturedGraphs::empty() const {
    const ddprun::Lock lock(mutex_);
    return std::ranges::all_of(graphs_, [](const auto& graph) { return graph.expired(); });
}

void CapturedGraphs::free_all() {
    const auto graphs = [this] {
        const ddprun::Lock lock(mutex_);
        is_over_ = true;
        return std::exchange(graphs_, {});
    }();
    for (const auto& known : graphs) {
        if (const auto graph = known.lock()) graph->free();
    }
}

StreamCapture::StreamCapture(std::shared_ptr<GroupDevice> device, CUstream stream)
    : device_(std::move(device)), stream_(stream) {
    const DeviceScope scope(*device_);
    const CudaApi& cuda = device_->cuda();
    check_cuda(cuda, cuda.stream_begin_capture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
               "capture: cuStreamBeginCapture of the stream");
}

StreamCapture::~StreamCapture() {
    if (stream_ == nullptr) return;
    try {
        CUresult result = CUDA_SUCCESS;
        const DeviceScope scope(*device_);
        if (const CUgraph graph = end_capture(result); graph != nullptr) (void)device_->cuda().graph_destroy(graph);
    } catch (const Error&) {  // the device is gone
    }
}

std::shared_ptr<CapturedGraph> StreamCapture::end() {
    const DeviceScope scope(*device_);
    const CudaApi& cuda = device_->cuda();
    CUresult result = CUDA_SUCCESS;
    const CUgraph graph = end_capture(result);
    if (result != CUDA_SUCCESS) {
        throw Error(ErrorCode::System,
                    fmt::format("CUDA gives no graph of the captured step: {}. The function may only enqueue work: no "
                                "cudaMalloc, no wait of the host for the device, no default stream. Every other stream "
                                "that computes waits for the captured one first, and is waited for at the end",
                                cuda_error_text(cuda, result)));
    }
    CUgraphExec instance = nullptr;
    const CUresult made = cuda.graph_instantiate(&instance, graph, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY);
    (void)cuda.graph_destroy(graph);  // the instance keeps what it needs
    check_cuda(cuda, made, "capture: cuGraphInstantiate of the step");
    return std::make_shared<CapturedGraph>(device_, instance);
}

CUgraph StreamCapture::end_capture(CUresult& result) {
    CUgraph graph = nullptr;
    result = device_->cuda().stream_end_capture(std::exchange(stream_, nullptr), &graph);
    return graph;
}

}  // namespace ddp::detail
