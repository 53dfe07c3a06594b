#pragma once
// Memory: the buffers of all calls, and how the program gets at their elements, which may lie on a device.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ddp/process_group.hpp"
#include "worker_lib/bench/collective.hpp"
#include "worker_lib/src/device_access.hpp"

namespace ddp::bench {

class Memory {
public:
    /// An input, and an output that in-place calls use alone, of `bytes` each: that of the largest buffer. In the
    /// group's arena, or of this process's own if `foreign`, which is the same thing on a device.
    /// device   null: the group's buffers are host memory
    Memory(ProcessGroup& group, std::size_t bytes, bool foreign, detail::DeviceAccess* device);
    ~Memory();
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    [[nodiscard]] Buffers place(const Call& call) const;
    [[nodiscard]] bool on_host() const { return device_ == nullptr; }
    /// Null on the host.
    [[nodiscard]] detail::DeviceAccess* device() const { return device_; }
    /// That of the calls.
    [[nodiscard]] Stream stream() const { return on_host() ? Stream{} : device_->stream(); }

    // As the pattern has it (pattern.hpp).
    void fill_input(const Call& call, const Buffer& in);
    /// With bytes that no call leaves there, so that one that does nothing cannot pass for the one before it.
    void fill_with_junk(const Buffer& out);
    [[nodiscard]] std::size_t count_wrong(const Call& call, const Buffer& out);

    /// Of all ranks. Collective.
    [[nodiscard]] std::uint64_t sum(std::uint64_t value);
    /// The same, each by itself.
    void take_largest(std::span<double> values);

private:
    /// `buffer` itself; where it lies on the device a host buffer of its size.
    [[nodiscard]] Buffer staged(const Buffer& buffer);
    void all_reduce(const Buffer& values, ReduceOp op);

    ProcessGroup& group_;
    detail::DeviceAccess* const device_;
    void* input_ = nullptr;
    void* output_ = nullptr;
    bool owned_ = false;
    void* words_ = nullptr;           // on the device: for values that travel between the ranks
    std::vector<std::byte> staging_;  // a buffer's elements while we look at them
};

}  // namespace ddp::bench
