#include "worker_lib/src/cuda/kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <map>
#include <string>
#include <utility>

#include "ddp/error.hpp"

namespace ddp::detail {
namespace {

struct CopyKernel {
    DType from;
    DType to;
    const char* name;
};
constexpr std::array<CopyKernel, 8> kCopies{{
    {DType::F64, DType::F64, "ddp_copy_f64"},
    {DType::F32, DType::F32, "ddp_copy_f32"},
    {DType::F16, DType::F16, "ddp_copy_f16"},
    {DType::BF16, DType::BF16, "ddp_copy_bf16"},
    {DType::F32, DType::F16, "ddp_copy_f32_to_f16"},
    {DType::F32, DType::BF16, "ddp_copy_f32_to_bf16"},
    {DType::F16, DType::F32, "ddp_copy_f16_to_f32"},
    {DType::BF16, DType::F32, "ddp_copy_bf16_to_f32"},
}};

/// Loads the kernels into the current context. The error has the text of the driver's compiler, if there is any.
CUmodule load_module(const CudaApi& cuda, int device) {
    std::string log(4096, '\0');
    std::array<CUjit_option, 2> names{CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    std::array<void*, 2> values{log.data(), reinterpret_cast<void*>(log.size())};  // a number is passed as a pointer
    CUmodule module = nullptr;
    const CUresult error =
        cuda.module_load_data_ex(&module, gradients_ptx(), names.size(), names.data(), values.data());
    log.resize(std::min(log.size(), log.find('\0')));
    check_cuda(cuda, error,
               fmt::format("CUDA device {} cannot run the kernels of the gradient reducer, which need compute "
                           "capability 8.0 or newer{}{}",
                           device, log.empty() ? "" : ": ", log));
    return module;
}

/// Cuts chunks into tables, and calls launch(table, tiles) for each.
template <typename Chunk, typename Launch>
void for_each_table(std::span<const Chunk> chunks, unsigned elements_per_tile, double factor, Launch launch) {
    ChunkTable<Chunk> table{};
    table.factor = factor;
    std::uint32_t tiles = 0;
    for (const Chunk& chunk : chunks) {
        if (chunk.count == 0) continue;
        if (table.count == table.kMaxChunks) {
            launch(table, tiles);
            table.count = tiles = 0;
        }
        table.chunks[table.count] = chunk;
        table.first_tile[table.count++] = tiles;
        tiles += static_cast<std::uint32_t>((chunk.count + elements_per_tile - 1) / elements_per_tile);
    }
    if (table.count != 0) launch(table, tiles);
}

}  // namespace

std::shared_ptr<const GradientKernels> GradientKernels::of(const GroupDevice& device) {
    static ddprun::Mutex& mutex = *new ddprun::Mutex;  // never destroyed: a program may end groups at its exit
    static auto& loaded = *new std::map<CUcontext, std::weak_ptr<const GradientKernels>>;
    const ddprun::Lock lock(mutex);
    auto kernels = loaded[device.context()].lock();
    if (kernels == nullptr) {
        // A use of the context of their own: the kernels may outlive the group that has needed them first.
        kernels.reset(new GradientKernels(std::make_shared<GroupDevice>(device.cuda(), device.index())));
        loaded[device.context()] = kernels;
    }
    return kernels;
}

GradientKernels::GradientKernels(std::shared_ptr<GroupDevice> device) : device_(std::move(device)) {
    static_assert(std::tuple_size_v<decltype(copies_)> == kCopies.size());
    const CudaApi& cuda = device_->cuda();
    const DeviceScope scope(*device_);
    module_ = load_module(cuda, device_->index());
    try {
        const auto find = [&](const char* name) {
            Kernel kernel{.name = name};
            check_cuda(cuda, cuda.module_get_function(&kernel.function, module_, name),
                       fmt::format("cuModuleGetFunction of {}", name));
            return kernel;
        };
        std::ranges::transform(kCopies, copies_.begin(), [&](const CopyKernel& one) { return find(one.name); });
        feed_back_f16_ = find("ddp_feed_back_f16");
        feed_back_bf16_ = find("ddp_feed_back_bf16");
        seal_ = find("ddp_seal");
        hash_ = find("ddp_hash");
    } catch (...) {
        (void)cuda.module_unload(module_);
        throw;
    }
}

GradientKernels::~GradientKernels() {
    free_bounded(device_, [module = module_](const CudaApi& cuda) { (void)cuda.module_unload(module); });
}

template <typename... Arguments>
void GradientKernels::launch(const Kernel& kernel, unsigned blocks, CUstream stream, Arguments&&... arguments) const {
    const CudaApi& cuda = device_->cuda();
    std::array<void*, sizeof...(arguments)> pointers{&arguments...};
    const CUresult launched =
        cuda.launch_kernel(kernel.function, blocks, 1, 1, kBlockThreads, 1, 1, 0, stream, pointers.data(), nullptr);
    if (launched != CUDA_SUCCESS) check_cuda(cuda, launched, fmt::format("cuLaunchKernel of {}", kernel.name));
}

void GradientKernels::copy(std::span<const CopyChunk> chunks, DType from, DType to, double factor,
                           CUstream stream) const {
    const auto kernel =
        std::ranges::find_if(kCopies, [&](const CopyKernel& one) { return one.from == from && one.to == to; });
    assert(kernel != kCopies.end());
    const Kernel& loaded = copies_[static_cast<std::size_t>(kernel - kCopies.begin())];
    const auto bytes = [](DType type) { return static_cast<unsigned>(size_of(type)); };
    for_each_table(chunks, tile_elements(bytes(from), bytes(to)), factor,
                   [&](auto& table, unsigned tiles) { launch(loaded, tiles, stream, table); });
}

void GradientKernels::feed_back(std::span<const FeedbackChunk> chunks, DType wire_type, CUstream stream) const {
    assert(wire_type == DType::F16 || wire_type == DType::BF16);
    const Kernel& kernel = wire_type == DType::F16 ? feed_back_f16_ : feed_back_bf16_;
    for_each_table(chunks, tile_elements(sizeof(float), sizeof(Float16)), 1,
                   [&](auto& table, unsigned tiles) { launch(kernel, tiles, stream, table); });
}

void GradientKernels::seal(void* memory, std::size_t bytes, CUdeviceptr given_up, CUdeviceptr step_ok,
                           CUstream stream) const {
    // Few blocks, because nearly all launches have nothing to do, and each block reads host memory.
    constexpr unsigned kBlocks = 32;
    launch(seal_, kBlocks, stream, memory, std::uint64_t{bytes}, given_up, step_ok);
}

void GradientKernels::hash(const void* memory, std::size_t bytes, CUdeviceptr sum, CUstream stream) const {
    // Each thread ends with an addition to the same word, so there is a limit to them. With one load of 8 bytes for
    // each thread in flight they do not reach the bandwidth of the fastest memory, which a verification does not need.
    constexpr std::size_t kMaxBlocks = 512;
    constexpr std::size_t kBlockBytes = 8 * kBlockThreads;
    const std::size_t blocks = std::clamp<std::size_t>((bytes + kBlockBytes - 1) / kBlockBytes, 1, kMaxBlocks);
    launch(hash_, static_cast<unsigned>(blocks), stream, memory, std::uint64_t{bytes}, sum);
}

}  // namespace ddp::detail
