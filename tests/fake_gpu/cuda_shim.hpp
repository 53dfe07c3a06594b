#pragma once
// Makes g++ compile a .cu file: CUDA's keywords, types and variables. The fake driver sets the variables and calls a
// kernel once for each thread of its grid, one after the other. So kernels have no shared memory and no barriers. A
// large argument is copied for each thread unless the parameter is a `const T&` here.
//
//     #include "tests/fake_gpu/cuda_shim.hpp"
//     #include "…/gradients.cu"
//     const bool registered = ddp::fake::register_kernel<&scale>("scale");      // in kernels.cpp

#include <cstdint>
#include <cstring>

#include "tests/fake_gpu/kernel_registry.hpp"

#define __global__
#define __device__
#define __host__
#define __constant__ const
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)

struct [[gnu::may_alias]] alignas(8) uint2 {
    unsigned x, y;
};
struct [[gnu::may_alias]] alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};

#define threadIdx (::ddp::fake::place_in_grid.thread)
#define blockIdx (::ddp::fake::place_in_grid.block)
#define blockDim (::ddp::fake::place_in_grid.block_size)
#define gridDim (::ddp::fake::place_in_grid.grid_size)

inline unsigned __float_as_uint(float value) {
    unsigned bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}
inline float __uint_as_float(unsigned bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
