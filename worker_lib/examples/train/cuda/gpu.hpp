#pragma once
// Gpu: a CUDA device with a stream, and the kernels of kernels.cu. It has the few calls of the driver (libcuda.so.1)
// that the model needs, opened at run time: no build needs the CUDA Toolkit. One thread, whose current device it is.

#include <array>
#include <cstddef>
#include <memory>

#include "ddp/ddp.hpp"

namespace train {

/// Returns the text of kernels.ptx, which the driver compiles for its device.
[[nodiscard]] const char* kernels_ptx();

enum class Kernel {
    kEmbed,
    kAddBias,
    kAddBiasTanh,
    kSoftmax,
    kSoftmaxBackward,
    kBiasGradient,
    kTanhBackward,
    kEmbeddingGradient,
    kSgd,
    kAdamW,
    kCount,
};

class Gpu {
public:
    /// Takes the device of this process: the one of its local rank, or the only one that it sees. Throws UserError if
    /// there is no driver, no such device, or the driver refuses the kernels.
    explicit Gpu(int local_rank);
    ~Gpu();
    Gpu(const Gpu&) = delete;
    Gpu& operator=(const Gpu&) = delete;

    /// Returns the stream of everything below. The host goes on meanwhile.
    [[nodiscard]] ddp::Stream stream() const;
    /// Enqueues a kernel on `count` threads. The arguments have exactly the types of the kernel's parameters, the last
    /// of which is `count`.
    template <typename... Arguments>
    void launch(Kernel kernel, std::size_t count, Arguments... arguments) {
        auto threads = static_cast<std::uint64_t>(count);
        std::array<void*, sizeof...(arguments) + 1> pointers{static_cast<void*>(&arguments)..., &threads};
        if (count > 0) launch(kernel, threads, pointers.data());
    }
    /// Enqueues a copy between device memory and memory of allocate_pinned(), in either direction.
    void copy(void* to, const void* from, std::size_t bytes);
    /// Enqueues zeros.
    void clear(void* memory, std::size_t bytes);
    /// Marks the end of what is enqueued now.
    void mark();
    /// Blocks until the device has come to the mark.
    void wait_for_mark();
    /// Blocks until the device has done all that is enqueued.
    void wait();

    /// Returns host memory that the device can copy while the host goes on. It lives as long as this object.
    [[nodiscard]] void* allocate_pinned(std::size_t bytes);

private:
    struct Driver;
    void launch(Kernel kernel, std::uint64_t count, void** arguments);

    std::unique_ptr<Driver> driver_;
};

}  // namespace train
