#pragma once
// GradientKernels: owns the kernels of the gradient reducer (kernels/gradients.cu), loaded into one device's context,
// and enqueues them. Reducers and compressions of a process share it. Every function only enqueues, in no case waits,
// and needs a thread on which the device is current (DeviceScope). Any thread.
//
// All results have the bits of the host's functions (reducer/values.hpp, reducer/compress.cpp), except for those of a
// NaN, which stays a NaN.

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "ddp/types.hpp"
#include "worker_lib/src/cuda/group_device.hpp"
#include "worker_lib/src/cuda/kernels/arguments.hpp"

namespace ddp::detail {

class GradientKernels {
public:
    /// Returns the kernels that this process has loaded on the device, or loads them, which compiles them for the
    /// device, and may wait for it: a reducer gets them when it is made. The last owner unloads them. Throws
    /// Error{System} when the device cannot run the kernels: they need compute capability 8.0.
    [[nodiscard]] static std::shared_ptr<const GradientKernels> of(const GroupDevice& device);
    /// Does not wait for the device longer than 10 s.
    ~GradientKernels();
    GradientKernels(const GradientKernels&) = delete;
    GradientKernels& operator=(const GradientKernels&) = delete;

    /// Returns the device, for a DeviceScope.
    [[nodiscard]] const GroupDevice& device() const { return *device_; }

    /// Copies all chunks, up to 145 of them in one launch, and multiplies by `factor`: f64 in
    /// double, all other types in f32, rounded to nearest even. The types are equal floats, or f32 and one of f16 and
    /// bf16. A pointer is a multiple of its element's size; where both are multiples of 16 bytes the copy is fastest.
    /// Chunks of no elements are allowed.
    void copy(std::span<const CopyChunk> chunks, DType from, DType to, double factor, CUstream stream) const;

    /// Prepares f32 gradients for sending as `wire_type` (f16 or bf16) with error feedback: adds the residual to the
    /// gradient, rounds the sum to the wire, and keeps as residual what rounding has changed; 0 if the sum is infinite
    /// or NaN, or became so on the wire.
    void feed_back(std::span<const FeedbackChunk> chunks, DType wire_type, CUstream stream) const;

    /// Decides on the device whether what lies in `memory` is valid. If the word `given_up`, in host memory that is
    /// mapped into the device, is not 0, this fills the memory with zeros and sets the word `step_ok`, in device
    /// memory, to 0; else it changes nothing. The host sets `given_up` before it aborts the communicator, so that a
    /// seal behind an aborted collective sees it. `given_up` and `step_ok` are addresses of 32-bit words as the device
    /// sees them.
    void seal(void* memory, std::size_t bytes, CUdeviceptr given_up, CUdeviceptr step_ok, CUstream stream) const;

    /// Adds a hash of the memory, for comparisons between ranks, to the 64-bit word `sum` in device memory. It depends
    /// on all bytes and their order, not on the address. The same on every device; not cryptographic.
    void hash(const void* memory, std::size_t bytes, CUdeviceptr sum, CUstream stream) const;

private:
    struct Kernel {
        const char* name = nullptr;
        CUfunction function = nullptr;
    };
    explicit GradientKernels(std::shared_ptr<GroupDevice> device);
    template <typename... Arguments>
    void launch(const Kernel& kernel, unsigned blocks, CUstream stream, Arguments&&... arguments) const;

    const std::shared_ptr<GroupDevice> device_;  ///< shared with the thread that unloads the kernels
    CUmodule module_ = nullptr;
    std::array<Kernel, 8> copies_{};  ///< in the order of kCopies (kernels.cpp)
    Kernel feed_back_f16_;
    Kernel feed_back_bf16_;
    Kernel seal_;
    Kernel hash_;
};

/// Returns the text of kernels/gradients.ptx.
[[nodiscard]] const char* gradients_ptx();

}  // namespace ddp::detail
