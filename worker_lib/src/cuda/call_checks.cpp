#include "worker_lib/src/cuda/call_checks.hpp"

#include <fmt/format.h>

#include <array>

namespace ddp::detail {

std::string capture_complaint(const CudaApi& cuda, CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult asked = cuda.stream_is_capturing(stream, &status);
    if (asked == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
        return "it is on the default stream, which cannot be used while a stream that waits for it is being captured "
               "into a CUDA graph (one made without cudaStreamNonBlocking)";
    }
    // Anything else that is wrong with the stream shows when it is used.
    if (asked != CUDA_SUCCESS || status == CU_STREAM_CAPTURE_STATUS_NONE) return {};
    return "its stream is being captured into a CUDA graph, and calls of ddp can be captured only by "
           "GradientReducer::capture";
}

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
            "the {} says Device::Cuda, but CUDA knows no memory there: it is host memory, or has been freed. Leave "
            "Device::Cuda out for host memory",
            name);
    }
    if (type != CU_MEMORYTYPE_DEVICE || managed != 0 || home == device) return {};
    return fmt::format(
        "the {} is memory of CUDA device {}; this rank uses CUDA device {}: call cudaSetDevice({}) before you "
        "allocate, or choose another one by InitOptions::device",
        name, home, device, device);
}

}  // namespace ddp::detail
