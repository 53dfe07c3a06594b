#include "worker_lib/src/nccl/arguments.hpp"

#include <fmt/format.h>

#include "worker_lib/src/cuda/call_checks.hpp"

namespace ddp::detail {
namespace {

std::string task_complaint(const CudaApi& cuda, const NcclTask& task, int device) {
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
    // A graph of the program's would repeat the call without its peers, its deadline or the watchdog.
    const auto wrong = work.is_captured() ? "" : capture_complaint(cuda, work.caller());
    if (wrong.empty()) return task_complaint(cuda, work.task(), device);
    return wrong + ": call the operation before or after the capture";
}

std::string wait_complaint(const CudaApi& cuda, CUstream stream) {
    const auto wrong = capture_complaint(cuda, stream);
    return wrong.empty() ? wrong : wrong + ": call wait() before or after the capture";
}

void record_on_callers_stream(const CudaApi& cuda, CUevent event, const NcclWork& work, int device) {
    const CUresult recorded = cuda.event_record(event, work.caller());
    if (recorded == CUDA_ERROR_INVALID_HANDLE)
        refuse(work, fmt::format("the stream belongs to another device; this rank uses CUDA device {0}: call "
                                 "cudaSetDevice({0}) before you make it",
                                 device));
    check_cuda(cuda, recorded, "cuEventRecord on the caller's stream");
}

void refuse(const NcclWork& work, const std::string& wrong) {
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("group '{}': {}: {}: {}", work.owner().group, work.owner().rank, work.text(), wrong))
        .in(work.owner().group, work.text(), work.seq());
}

}  // namespace ddp::detail
