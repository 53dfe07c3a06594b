// DeviceScope costs two calls of the driver, and no memory: the reducer makes one for each gradient.

#include <cstdlib>
#include <new>

#include "tests/catch.hpp"
#include "worker_lib/src/cuda/group_device.hpp"

using namespace ddp::abi;

namespace {

thread_local int allocations_of_thread = 0;
int scopes = 0;

CudaApi counting_table() {
    CudaApi cuda;
    cuda.device_get = [](CUdevice* device, int) { return *device = 0, CUDA_SUCCESS; };
    cuda.device_primary_ctx_retain = [](CUcontext*, CUdevice) { return CUDA_SUCCESS; };
    cuda.device_primary_ctx_release = [](CUdevice) { return CUDA_SUCCESS; };
    cuda.ctx_push_current = [](CUcontext) { return ++scopes, CUDA_SUCCESS; };
    cuda.ctx_pop_current = [](CUcontext*) { return CUDA_SUCCESS; };
    cuda.stream_create_with_priority = [](CUstream*, unsigned, int) { return CUDA_SUCCESS; };
    cuda.stream_destroy = [](CUstream) { return CUDA_SUCCESS; };
    return cuda;
}

}  // namespace

// A sanitizer has operators of its own, which must not be mixed with these.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void* operator new(std::size_t bytes) {
    ++allocations_of_thread;
    if (void* const memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
    throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif

TEST_CASE("a device is made current without an allocation", "[cuda]") {
    const ddp::detail::GroupDevice device(counting_table(), 0);
    scopes = allocations_of_thread = 0;
    { const ddp::detail::DeviceScope scope(device); }
    CHECK(allocations_of_thread == 0);
    CHECK(scopes == 1);
}
