#include "tests/gpu/gpu.hpp"

namespace ddp::test {
namespace {

/// A kernel of one thread that waits for `nanoseconds`. PTX ISA 7.0 is that of CUDA 11.0, so every driver loads it.
constexpr const char* kHoldKernel = R"(
.version 7.0
.target sm_70
.address_size 64

.visible .entry ddp_test_hold(.param .u64 nanoseconds)
{
    .reg .pred early;
    .reg .u64 now, end, length;
    ld.param.u64 length, [nanoseconds];
    mov.u64 end, %globaltimer;
    add.u64 end, end, length;
AGAIN:
    nanosleep.u32 1000;
    mov.u64 now, %globaltimer;
    setp.lt.u64 early, now, end;
    @early bra AGAIN;
    ret;
}
)";

bool launch_hold_kernel(const CudaApi& cuda, CUstream stream, std::uint64_t nanoseconds) {
    CUmodule module = nullptr;  // stays loaded: unloading it would wait for the kernel
    CUfunction kernel = nullptr;
    if (cuda.module_load_data_ex(&module, kHoldKernel, 0, nullptr, nullptr) != CUDA_SUCCESS) return false;
    if (cuda.module_get_function(&kernel, module, "ddp_test_hold") != CUDA_SUCCESS) return false;
    void* arguments[]{&nanoseconds};
    return cuda.launch_kernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr) == CUDA_SUCCESS;
}

/// Holds the stream of a fake driver (tests/fake_gpu/stream_call.hpp), which has no such kernel.
bool launch_hold_task(CUstream stream, std::chrono::milliseconds time) {
    const auto launch = Gpu::function<int (*)(CUstream, void (*)(void*), void*)>("ddp_fake_cuda_call");
    if (launch == nullptr) return false;
    const auto sleep = [](void* milliseconds) {
        std::this_thread::sleep_for(std::chrono::milliseconds(reinterpret_cast<std::intptr_t>(milliseconds)));
    };
    return launch(stream, sleep, reinterpret_cast<void*>(static_cast<std::intptr_t>(time.count()))) == CUDA_SUCCESS;
}

}  // namespace

bool Gpu::hold(std::chrono::milliseconds time) {
    const auto nanoseconds = static_cast<std::uint64_t>(std::chrono::nanoseconds(time).count());
    return launch_hold_kernel(api_, device_.stream(), nanoseconds) || launch_hold_task(device_.stream(), time);
}

std::optional<std::size_t> Gpu::free_memory() {
    const auto query = function<CUresult (*)(std::size_t*, std::size_t*)>("cuMemGetInfo_v2");
    std::size_t free = 0, total = 0;
    if (query == nullptr || query(&free, &total) != CUDA_SUCCESS) return std::nullopt;
    return free;
}

void Gpu::wait_for(CUevent event) {
    const auto limit = ddprun::Clock::now() + std::chrono::seconds(60);
    CUresult state = CUDA_ERROR_NOT_READY;
    while (state == CUDA_ERROR_NOT_READY && ddprun::Clock::now() < limit) {
        state = api_.event_query(event);
        std::this_thread::yield();
    }
    detail::check_cuda(api_, state, "waiting for the test's stream");
}

}  // namespace ddp::test
