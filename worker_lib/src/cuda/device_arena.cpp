#include "worker_lib/src/cuda/device_arena.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "ddp/error.hpp"
#include "worker_lib/src/cuda/waiting.hpp"

namespace ddp::detail {
namespace {

/// Owns a stream for the zeros: on the group's stream they would queue behind collectives that wait for peers.
class FillStream {
public:
    explicit FillStream(const CudaApi& cuda) : cuda_(cuda) {
        check_cuda(cuda_, cuda_.stream_create_with_priority(&stream_, CU_STREAM_NON_BLOCKING, 0),
                   "cuStreamCreateWithPriority");
    }
    ~FillStream() { (void)cuda_.stream_destroy(stream_); }
    FillStream(const FillStream&) = delete;
    FillStream& operator=(const FillStream&) = delete;
    [[nodiscard]] CUstream get() const { return stream_; }

private:
    const CudaApi& cuda_;
    CUstream stream_ = nullptr;
};

}  // namespace

DeviceArena::~DeviceArena() {
    free_bounded(device_, [blocks = blocks_](const CudaApi& cuda) {
        for (CUdeviceptr block : blocks) (void)cuda.mem_free(block);
    });
}

void* DeviceArena::allocate(std::size_t bytes) {
    const CudaApi& cuda = device_->cuda();
    const DeviceScope scope(*device_);
    const std::size_t room = std::max<std::size_t>(bytes, 1);  // cuMemAlloc refuses 0
    CUdeviceptr block = 0;
    if (const CUresult made = cuda.mem_alloc(&block, room); made != CUDA_SUCCESS) {  // aligned to 256
        throw Error(ErrorCode::System,
                    fmt::format("no room for {} bytes on CUDA device {}: {}. `nvidia-smi` shows the processes that use "
                                "its memory: end those that should not be there, or make the batch or model smaller",
                                bytes, device_->index(), cuda_error_text(cuda, made)));
    }
    {
        const ddprun::Lock lock(mutex_);
        blocks_.push_back(block);  // from here on the arena frees it, also if the next line throws
    }
    fill_with_zeros(block, room);
    return reinterpret_cast<void*>(block);
}

/// Fills the memory with zeros and blocks until the device has done so, because nothing orders what the caller then
/// writes on another stream after the fill. Throws Error{System}, also if that takes more than 60 s.
void DeviceArena::fill_with_zeros(CUdeviceptr memory, std::size_t bytes) {
    constexpr auto kTimeout = std::chrono::seconds(60);
    const CudaApi& cuda = device_->cuda();
    const FillStream stream(cuda);
    check_cuda(cuda, cuda.memset_d8_async(memory, 0, bytes, stream.get()), "cuMemsetD8Async");
    CUevent filled = device_->acquire_event();
    CUresult state = cuda.event_record(filled, stream.get());
    if (state == CUDA_SUCCESS) state = CUDA_ERROR_NOT_READY;
    const auto limit = ddprun::Clock::now() + kTimeout;
    for (Backoff backoff; state == CUDA_ERROR_NOT_READY && ddprun::Clock::now() < limit; backoff.pause()) {
        state = cuda.event_query(filled);
    }
    device_->release(filled);
    check_cuda(cuda, state, fmt::format("zeroing {} bytes on CUDA device {}", bytes, device_->index()));
}

}  // namespace ddp::detail
