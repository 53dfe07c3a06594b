// The kernels of worker_lib/src/cuda/kernels, compiled as C++ from the source of their PTX.

#include "tests/fake_gpu/cuda_shim.hpp"
//
#include "worker_lib/src/cuda/kernels/gradients.cu"

namespace {

#define DDP_REGISTER(kernel) ddp::fake::register_kernel<&kernel>(#kernel)
[[maybe_unused]] const bool registered[] = {
    DDP_REGISTER(ddp_copy_f64),
    DDP_REGISTER(ddp_copy_f32),
    DDP_REGISTER(ddp_copy_f16),
    DDP_REGISTER(ddp_copy_bf16),
    DDP_REGISTER(ddp_copy_f32_to_f16),
    DDP_REGISTER(ddp_copy_f32_to_bf16),
    DDP_REGISTER(ddp_copy_f16_to_f32),
    DDP_REGISTER(ddp_copy_bf16_to_f32),
    DDP_REGISTER(ddp_feed_back_f16),
    DDP_REGISTER(ddp_feed_back_bf16),
    DDP_REGISTER(ddp_seal),
    DDP_REGISTER(ddp_hash),
};
#undef DDP_REGISTER

}  // namespace
