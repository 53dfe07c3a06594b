// The calls of the fake driver that concern modules and kernels.

#include "tests/fake_gpu/call.hpp"
#include "tests/fake_gpu/kernel_registry.hpp"

using namespace ddp::fake;

namespace {

/// A module has nothing of its own: all kernels are in every one.
struct Module {};

bool fits(const Dim3& grid, const Dim3& block) {
    const std::size_t threads = std::size_t{block.x} * block.y * block.z;
    return grid.x > 0 && grid.y > 0 && grid.z > 0 && threads > 0 && threads <= 1024 && block.z <= 64 &&
           grid.x <= 0x7fffffff && grid.y <= 65535 && grid.z <= 65535;
}

/// Runs a kernel for each thread of its grid.
void run_grid(const BoundKernel& kernel, const Dim3& grid, const Dim3& block) {
    PlaceInGrid& place = place_in_grid;
    place.grid_size = grid;
    place.block_size = block;
    Dim3& b = place.block;
    Dim3& t = place.thread;
    for (b.z = 0; b.z < grid.z; ++b.z)
        for (b.y = 0; b.y < grid.y; ++b.y)
            for (b.x = 0; b.x < grid.x; ++b.x)
                for (t.z = 0; t.z < block.z; ++t.z)
                    for (t.y = 0; t.y < block.y; ++t.y)
                        for (t.x = 0; t.x < block.x; ++t.x) kernel();
}

}  // namespace

DDP_FAKE_EXPORT CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, CUjit_option*, void**) {
    return call("cuModuleLoadDataEx", Needs::Context, [&] {
        if (image == nullptr) return kInvalidValue;
        static Module the_module;
        *module = reinterpret_cast<CUmodule>(&the_module);
        return CUDA_SUCCESS;
    });
}

/// Waits for all work of the device, whose kernels may be in use.
DDP_FAKE_EXPORT CUresult cuModuleUnload(CUmodule module) {
    return call("cuModuleUnload", Needs::Context, [&] {
        if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        current_device()->wait_for_all_work();
        return CUDA_SUCCESS;
    });
}

DDP_FAKE_EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
    return call("cuModuleGetFunction", Needs::Context, [&] {
        if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        const Kernel* const kernel = find_kernel(name);
        if (kernel == nullptr) return kNotFound;
        *function = reinterpret_cast<CUfunction>(const_cast<Kernel*>(kernel));
        return CUDA_SUCCESS;
    });
}

DDP_FAKE_EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned, CUstream stream,
                                        void** arguments, void** extra) {
    return call("cuLaunchKernel", Needs::Context, [&] {
        if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        if (extra != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
        const Dim3 grid{grid_x, grid_y, grid_z};
        const Dim3 block{block_x, block_y, block_z};
        if (!fits(grid, block)) return kInvalidValue;
        std::vector<Block*> memory;
        BoundKernel kernel =
            reinterpret_cast<const Kernel*>(function)->bind(arguments, [&](std::span<const std::byte> bytes) {
                for (Block* const used : MemoryTable::instance().named_in(bytes)) memory.push_back(used);
            });
        return enqueue(
            stream, [kernel = std::move(kernel), grid, block] { run_grid(kernel, grid, block); }, std::move(memory));
    });
}
