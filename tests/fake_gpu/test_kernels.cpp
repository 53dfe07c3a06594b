// Kernels for the tests of the fake driver itself.

#include "tests/fake_gpu/cuda_shim.hpp"

namespace {

struct Factors {
    float scale;
    const float* offset;
};

__global__ void fake_scale_and_add(float* __restrict__ values, const Factors factors, unsigned count) {
    const unsigned first = blockIdx.x * blockDim.x + threadIdx.x;
    for (unsigned i = first; i < count; i += gridDim.x * blockDim.x)
        values[i] = factors.scale * values[i] + *factors.offset;
}

/// Writes to each thread's word where in the grid it is, as one number.
__global__ void fake_places(std::uint64_t* places) {
    const std::uint64_t block = (std::uint64_t{blockIdx.z} * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const std::uint64_t thread = (std::uint64_t{threadIdx.z} * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    const std::uint64_t index = block * blockDim.x * blockDim.y * blockDim.z + thread;
    places[index] = index + 1;
}

__global__ void fake_nothing() {}

[[maybe_unused]] const bool registered[] = {
    ddp::fake::register_kernel<&fake_scale_and_add>("fake_scale_and_add"),
    ddp::fake::register_kernel<&fake_places>("fake_places"),
    ddp::fake::register_kernel<&fake_nothing>("fake_nothing"),
};

}  // namespace
