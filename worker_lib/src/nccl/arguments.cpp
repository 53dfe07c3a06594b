#include "worker_lib/src/nccl/arguments.hpp"

#include <fmt/format.h>

#include <cstdint>

namespace ddp::detail {
namespace {

/// Returns why the stream cannot be used during a capture; empty: it can, as far as CUDA reports. The query ends no
/// capture.
std::string capture_complaint(const CudaApi& cuda, cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaError_t asked = cuda.stream_is_capturing(stream, &status);
    if (asked != cudaSuccess) (void)cuda.get_last_error();
    if (asked == cudaErrorStreamCaptureImplicit) {
        return "it is on the default stream, which cannot be used while a stream that waits for it is being captured "
               "into a CUDA graph (one made without cudaStreamNonBlocking)";
    }
    // Anything else that is wrong with the stream shows when it is used.
    if (asked != cudaSuccess || status == cudaStreamCaptureStatusNone) return {};
    return "its stream is being captured into a CUDA graph, and no operation of a group can be part of one";
}

/// Returns why the device cannot use the buffer's memory; empty if it can. A kernel that touches memory which the
/// device cannot see leaves a sticky error, after which the process cannot use CUDA any more.
std::string memory_complaint(const CudaApi& cuda, const Buffer& buffer, std::string_view name, int device) {
    if (buffer.count == 0 || buffer.data == nullptr) return {};
    const auto pointer = static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(buffer.data));
    unsigned type = 0, managed = 0;
    const CUresult known = cuda.pointer_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer);
    if (known == CUDA_ERROR_INVALID_VALUE) {
        return fmt::format(
            "the {} says Device::Cuda, but CUDA knows no memory there: it is host memory, or has been freed", name);
    }
    int home = device;
    if (known != CUDA_SUCCESS || type != CU_MEMORYTYPE_DEVICE ||
        cuda.pointer_attribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, pointer) != CUDA_SUCCESS || managed != 0 ||
        cuda.pointer_attribute(&home, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer) != CUDA_SUCCESS || home == device) {
        return {};
    }
    return fmt::format("the {} is memory of CUDA device {}; this rank uses CUDA device {}", name, home, device);
}

std::string memory_complaint(const CudaApi& cuda, const NcclTask& task, int device) {
    if (const auto* const operation = std::get_if<Operation>(&task)) {
        auto wrong = memory_complaint(cuda, operation->buffer, operation->output ? "input" : "buffer", device);
        if (wrong.empty() && operation->output) wrong = memory_complaint(cuda, *operation->output, "output", device);
        return wrong;
    }
    for (const Transfer& message : std::get<TransferList>(task).transfers) {
        const std::string name = fmt::format("buffer {} rank {}", message.sends ? "for" : "from", message.peer);
        if (auto wrong = memory_complaint(cuda, message.buffer, name, device); !wrong.empty()) return wrong;
    }
    return {};
}

}  // namespace

std::string argument_complaint(const CudaApi& cuda, const NcclWork& work, int device) {
    if (work.is_barrier()) return {};  // has no buffer, and no caller's stream
    // A replayed graph would repeat the call without its peers, its deadline or the watchdog.
    const auto wrong = capture_complaint(cuda, work.caller());
    if (wrong.empty()) return memory_complaint(cuda, work.task(), device);
    return wrong + ": call the operation before or after the capture";
}

std::string wait_complaint(const CudaApi& cuda, cudaStream_t stream) {
    const auto wrong = capture_complaint(cuda, stream);
    return wrong.empty() ? wrong : wrong + ": call wait() before or after the capture";
}

void record_on_callers_stream(const CudaApi& cuda, cudaEvent_t event, const NcclWork& work, int device) {
    const cudaError_t recorded = cuda.event_record(event, work.caller());
    if (recorded == cudaErrorInvalidResourceHandle) {
        (void)cuda.get_last_error();
        refuse(work, fmt::format("the stream belongs to another device; this rank uses CUDA device {}", device));
    }
    check_cuda(cuda, recorded, "cudaEventRecord on the caller's stream");
}

void refuse(const NcclWork& work, const std::string& wrong) {
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("group '{}': {}: {}: {}", work.owner().group, work.owner().rank, work.text(), wrong))
        .in(work.owner().group, work.text(), work.seq());
}

}  // namespace ddp::detail
