#include "worker_lib/src/nccl/arguments.hpp"

#include <fmt/format.h>

#include <array>

namespace ddp::detail {
namespace {

/// Returns why the stream cannot be used during a capture; empty: it can, as far as CUDA reports. The query ends no
/// capture.
std::string capture_complaint(const CudaApi& cuda, CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult asked = cuda.stream_is_capturing(stream, &status);
    if (asked == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
        return "it is on the default stream, which cannot be used while a stream that waits for it is being captured "
               "into a CUDA graph (one made without cudaStreamNonBlocking)";
    }
    // Anything else that is wrong with the stream shows when it is used.
    if (asked != CUDA_SUCCESS || status == CU_STREAM_CAPTURE_STATUS_NONE) return {};
    return "its stream is being captured into a CUDA graph, and no operation of a group can be part of one";
}

/// Returns why the device cannot use the buffer's memory; empty if it can. A kernel that touches memory which the
/// device cannot see leaves a sticky error, after which the process cannot use CUDA any more.
std::string memory_complaint(const CudaApi& cuda, const Buffer& buffer, std::string_view name, int device) {
    if (buffer.count == 0 || buffer.data == nullptr) return {};
    unsigned type = 0, managed = 0;
    int home = device;
    std::array attributes{CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                          CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    std::array<void*, attributes.size()> values{&type, &managed, &home};
    if (cuda.pointer_get_attributes(attributes.size(), attributes.data(), values.data(), device_pointer(buffer.data)) !=
        CUDA_SUCCESS)
        return {};
    if (type == 0) {
        return fmt::format(
            "the {} says Device::Cuda, but CUDA knows no memory there: it is host memory, or has been freed", name);
    }
    if (type != CU_MEMORYTYPE_DEVICE || managed != 0 || home == device) return {};
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
    if (work.is_barrier_of_hosts()) return {};  // has no buffer, and no caller's stream
    // A replayed graph would repeat the call without its peers, its deadline or the watchdog.
    const auto wrong = capture_complaint(cuda, work.caller());
    if (wrong.empty()) return memory_complaint(cuda, work.task(), device);
    return wrong + ": call the operation before or after the capture";
}

std::string wait_complaint(const CudaApi& cuda, CUstream stream) {
    const auto wrong = capture_complaint(cuda, stream);
    return wrong.empty() ? wrong : wrong + ": call wait() before or after the capture";
}

void record_on_callers_stream(const CudaApi& cuda, CUevent event, const NcclWork& work, int device) {
    const CUresult recorded = cuda.event_record(event, work.caller());
    if (recorded == CUDA_ERROR_INVALID_HANDLE)
        refuse(work, fmt::format("the stream belongs to another device; this rank uses CUDA device {}", device));
    check_cuda(cuda, recorded, "cuEventRecord on the caller's stream");
}

void refuse(const NcclWork& work, const std::string& wrong) {
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("group '{}': {}: {}: {}", work.owner().group, work.owner().rank, work.text(), wrong))
        .in(work.owner().group, work.text(), work.seq());
}

}  // namespace ddp::detail
