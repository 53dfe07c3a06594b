#include "worker_lib/src/nccl/device/device_arena.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "ddp/error.hpp"
#include "worker_lib/src/nccl/device/waiting.hpp"

namespace ddp::detail {
namespace {

/// Owns a stream for the zeros: on the group's stream they would queue behind collectives that wait for peers.
class FillStream {
public:
    explicit FillStream(const CudaApi& cuda) : cuda_(cuda) {
        check_cuda(cuda_, cuda_.stream_create_with_flags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    }
    ~FillStream() { (void)cuda_.stream_destroy(stream_); }
    FillStream(const FillStream&) = delete;
    FillStream& operator=(const FillStream&) = delete;
    [[nodiscard]] cudaStream_t get() const { return stream_; }

private:
    const CudaApi& cuda_;
    cudaStream_t stream_ = nullptr;
};

}  // namespace

DeviceArena::~DeviceArena() {
    for (void* block : blocks_)
        (void)device_->cuda().free(block);  // on failure the process is ending, or the device is lost
}

void* DeviceArena::allocate(std::size_t bytes) {
    const CudaApi& cuda = device_->cuda();
    const DeviceScope scope(cuda, device_->index());
    const std::size_t room = std::max<std::size_t>(bytes, 1);  // cudaMalloc(0) gives null
    void* block = nullptr;
    check_cuda(cuda, cuda.malloc(&block, room),  // aligned to 256
               fmt::format("no room for {} bytes on CUDA device {}", bytes, device_->index()));
    {
        const ddprun::Lock lock(mutex_);
        blocks_.push_back(block);  // from here on the arena frees it, also if the next line throws
    }
    fill_with_zeros(block, room);
    return block;
}

/// Fills the memory with zeros and blocks until the device has done so, because nothing orders what the caller then
/// writes on another stream after the fill. Throws Error{System}, also if that takes more than 60 s.
void DeviceArena::fill_with_zeros(void* memory, std::size_t bytes) {
    constexpr auto kTimeout = std::chrono::seconds(60);
    const CudaApi& cuda = device_->cuda();
    const FillStream stream(cuda);
    check_cuda(cuda, cuda.memset_async(memory, 0, bytes, stream.get()), "cudaMemsetAsync");
    cudaEvent_t filled = device_->acquire_event();
    cudaError_t state = cuda.event_record(filled, stream.get());
    if (state == cudaSuccess) state = cudaErrorNotReady;
    const auto limit = ddprun::Clock::now() + kTimeout;
    for (Backoff backoff; state == cudaErrorNotReady && ddprun::Clock::now() < limit; backoff.pause()) {
        state = query_event(cuda, filled);
    }
    device_->release(filled);
    check_cuda(cuda, state, fmt::format("zeroing {} bytes on CUDA device {}", bytes, device_->index()));
}

}  // namespace ddp::detail
