#pragma once
// The kernels that are compiled into the fake driver, by the names that cuModuleGetFunction looks up. They are
// registered before main() or by dlopen; afterwards any thread may read.

#include <array>
#include <cstddef>
#include <cstring>
#include <functional>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace ddp::fake {

struct Dim3 {
    unsigned x = 1, y = 1, z = 1;
};

/// What a kernel reads as threadIdx, blockIdx, blockDim and gridDim.
struct PlaceInGrid {
    Dim3 thread, block, block_size, grid_size;
};
inline thread_local constinit PlaceInGrid place_in_grid;

/// A kernel with its arguments: runs one thread of the grid.
using BoundKernel = std::function<void()>;

/// A kernel. Its address is the driver's CUfunction.
struct Kernel {
    const char* name;
    /// Copies the arguments, as the driver does at the launch, and reports the bytes of each to `seen`.
    BoundKernel (*bind)(void* const* arguments, const std::function<void(std::span<const std::byte>)>& seen);
};

/// Returns nullptr for an unknown name.
const Kernel* find_kernel(std::string_view name);

/// Registers a kernel; ends the process when the name is taken.
bool register_kernel(const Kernel& kernel);

namespace detail {

template <typename Function>
struct KernelOf;

template <typename... Parameters>
struct KernelOf<void (*)(Parameters...)> {
    template <void (*kernel)(Parameters...)>
    static BoundKernel bind(void* const* arguments, const std::function<void(std::span<const std::byte>)>& seen) {
        return bind_all<kernel>(arguments, seen, std::index_sequence_for<Parameters...>());
    }

private:
    template <typename Parameter>
    using Value = std::remove_cvref_t<Parameter>;
    static_assert((std::is_trivially_copyable_v<Value<Parameters>> && ...), "CUDA copies arguments as bytes");

    template <void (*kernel)(Parameters...), std::size_t... i>
    static BoundKernel bind_all([[maybe_unused]] void* const* arguments,
                                const std::function<void(std::span<const std::byte>)>& seen,
                                std::index_sequence<i...>) {
        const std::array<std::size_t, sizeof...(i)> sizes{sizeof(Value<Parameters>)...};
        for (std::size_t k = 0; k < sizes.size(); ++k) seen({static_cast<const std::byte*>(arguments[k]), sizes[k]});
        return [values = std::tuple<Value<Parameters>...>(*static_cast<const Value<Parameters>*>(arguments[i])...)] {
            std::apply(kernel, values);
        };
    }
};

}  // namespace detail

/// Registers a function that was compiled from a .cu file.
template <auto kernel>
bool register_kernel(const char* name) {
    return register_kernel({.name = name, .bind = &detail::KernelOf<decltype(kernel)>::template bind<kernel>});
}

}  // namespace ddp::fake
