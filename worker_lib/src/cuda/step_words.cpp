#include "worker_lib/src/cuda/step_words.hpp"

#include <atomic>
#include <cstddef>
#include <new>
#include <utility>

namespace ddp::detail {

/// The layout of the shared memory.
struct StepWords::Words {
    std::atomic<std::uint32_t> given_up;
    std::uint32_t one;
    std::atomic<std::uint32_t> done;  ///< the lower half of the step's number
};

StepWords::StepWords(std::shared_ptr<GroupDevice> device) : device_(std::move(device)) {
    const CudaApi& cuda = device_->cuda();
    const DeviceScope scope(*device_);
    void* memory = nullptr;
    check_cuda(cuda, cuda.mem_host_alloc(&memory, sizeof(Words), kHostAllocPortable),
               "no room for a page of pinned host memory");
    words_ = new (memory) Words{.given_up = 0, .one = 1, .done = 0};
    if (const CUresult mapped = cuda.mem_host_get_device_pointer(&address_, memory, 0); mapped != CUDA_SUCCESS) {
        (void)cuda.mem_free_host(memory);
        check_cuda(cuda, mapped, "cuMemHostGetDevicePointer");
    }
}

StepWords::~StepWords() {
    free_bounded(device_, [words = words_](const CudaApi& cuda) { (void)cuda.mem_free_host(words); });
}

CUdeviceptr StepWords::given_up_word() const { return address_ + offsetof(Words, given_up); }
CUdeviceptr StepWords::one_word() const { return address_ + offsetof(Words, one); }

void StepWords::write_done(std::uint64_t step, CUstream stream) const {
    const auto value = static_cast<std::uint32_t>(step);
    check_cuda(device_->cuda(), device_->cuda().memset_d32_async(address_ + offsetof(Words, done), value, 1, stream),
               "cuMemsetD32Async");
}

void StepWords::give_up() {
    const ddprun::Lock lock(mutex_);
    if (done_at_end_) return;
    done_at_end_ = words_->done.load();
    words_->given_up.store(1);
}

std::uint64_t StepWords::confirmed(std::uint64_t last) const {
    const ddprun::Lock lock(mutex_);
    const std::uint32_t done = done_at_end_ ? *done_at_end_ : words_->done.load();
    return last - (static_cast<std::uint32_t>(last) - done);  // the difference of the lower halves
}

}  // namespace ddp::detail
