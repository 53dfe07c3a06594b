#pragma once
// Memory: owns the buffers of all calls and copies their elements, which may be on a device. One thread.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ddp/process_group.hpp"
#include "worker_lib/bench/collective.hpp"
#include "worker_lib/src/cuda/device_access.hpp"

namespace ddp::bench {

class Memory {
public:
    /// Allocates an input and an output of `bytes` each, the size of the largest buffer; in-place calls use the output
    /// alone. They are in the group's arena, or, if `foreign` and on the host, memory of this process.
    /// device   null: the group's buffers are host memory
    Memory(ProcessGroup& group, std::size_t bytes, bool foreign, detail::DeviceAccess* device);
    ~Memory();
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    /// Returns the buffers of a call.
    [[nodiscard]] Buffers buffers_of(const Call& call) const;
    [[nodiscard]] bool on_host() const { return device_ == nullptr; }
    /// Returns the device; null on the host.
    [[nodiscard]] detail::DeviceAccess* device() const { return device_; }
    /// Returns the stream of the calls.
    [[nodiscard]] Stream stream() const { return on_host() ? Stream{} : device_->stream(); }

    /// Writes the pattern's input (pattern.hpp).
    void fill_input(const Call& call, const Buffer& in);
    /// Writes bytes that no call produces, so that a call which does nothing cannot pass with the previous results.
    void fill_with_junk(const Buffer& out);
    /// Returns how many elements of `out` differ from the pattern's.
    [[nodiscard]] std::size_t count_wrong(const Call& call, const Buffer& out);

    /// Returns the sum over all ranks. Collective.
    [[nodiscard]] std::uint64_t sum(std::uint64_t value);
    /// Replaces each value by the largest of all ranks. Collective.
    void take_largest(std::span<double> values);

private:
    /// Returns `buffer` itself, or a host buffer of its size if it is on the device.
    [[nodiscard]] Buffer staged(const Buffer& buffer);
    void all_reduce(const Buffer& values, ReduceOp op);

    ProcessGroup& group_;
    detail::DeviceAccess* const device_;
    void* input_ = nullptr;
    void* output_ = nullptr;
    bool owned_ = false;
    void* words_ = nullptr;           // on the device: for values that the ranks reduce
    std::vector<std::byte> staging_;  // host copy of a buffer on the device
};

}  // namespace ddp::bench
