// The kernels of the example train, compiled as C++ from the source of their PTX.

#include "tests/fake_gpu/cuda_shim.hpp"
//
#include "worker_lib/examples/train/cuda/kernels.cu"

namespace {

#define DDP_REGISTER(kernel) ddp::fake::register_kernel<&kernel>(#kernel)
[[maybe_unused]] const bool registered[] = {
    DDP_REGISTER(train_embed),         DDP_REGISTER(train_add_bias),           DDP_REGISTER(train_add_bias_tanh),
    DDP_REGISTER(train_softmax),       DDP_REGISTER(train_softmax_backward),   DDP_REGISTER(train_bias_gradient),
    DDP_REGISTER(train_tanh_backward), DDP_REGISTER(train_embedding_gradient), DDP_REGISTER(train_sgd),
    DDP_REGISTER(train_adamw),
};
#undef DDP_REGISTER

}  // namespace
