#include "worker_lib/bench/memory.hpp"

#include <cstdlib>
#include <cstring>
#include <new>

#include "worker_lib/bench/pattern.hpp"

namespace ddp::bench {
namespace {

constexpr std::size_t kAlignBytes = 128;
constexpr std::size_t kWordBytes = 128;
constexpr int kJunk = 0x5a;

}  // namespace

Memory::Memory(ProcessGroup& group, std::size_t bytes, bool foreign, detail::DeviceAccess* device)
    : group_(group), device_(device) {
    const std::size_t padded = (bytes / kAlignBytes + 1) * kAlignBytes;
    if (foreign && on_host()) {
        owned_ = true;
        input_ = std::aligned_alloc(kAlignBytes, padded);
        output_ = std::aligned_alloc(kAlignBytes, padded);
        if (input_ == nullptr || output_ == nullptr) throw std::bad_alloc();
    } else {
        input_ = group.arena().allocate(padded);
        output_ = group.arena().allocate(padded);
    }
    if (!on_host()) words_ = group.arena().allocate(kWordBytes);
}

Memory::~Memory() {
    if (!owned_) return;
    std::free(input_);
    std::free(output_);
}

Buffers Memory::buffers_of(const Call& call) const {
    return bench::buffers_of(call, input_, output_, on_host() ? Device::Cpu : Device::Cuda);
}

Buffer Memory::staged(const Buffer& buffer) {
    if (on_host()) return buffer;
    if (staging_.size() < buffer.bytes()) staging_.resize(buffer.bytes());
    return {staging_.data(), buffer.count, buffer.dtype, Device::Cpu};
}

void Memory::fill_input(const Call& call, const Buffer& in) {
    const Buffer host = staged(in);
    bench::fill_input(call, host);
    if (!on_host()) device_->copy(in.data, host.data, in.bytes());
}

void Memory::fill_with_junk(const Buffer& out) {
    if (out.count == 0) return;
    const Buffer host = staged(out);
    std::memset(host.data, kJunk, out.bytes());
    if (!on_host()) device_->copy(out.data, host.data, out.bytes());
}

std::size_t Memory::count_wrong(const Call& call, const Buffer& out) {
    const Buffer host = staged(out);
    if (!on_host()) device_->copy(host.data, out.data, out.bytes());
    return bench::count_wrong(call, host, group_.backend());
}

std::uint64_t Memory::sum(std::uint64_t value) {
    all_reduce(value, ReduceOp::Sum);
    return value;
}

void Memory::take_largest(std::span<double> values) { all_reduce(values, ReduceOp::Max); }

void Memory::all_reduce(const Buffer& values, ReduceOp op) {
    if (on_host()) return group_.all_reduce(values, op).wait();
    device_->copy(words_, values.data, values.bytes());
    group_.all_reduce({words_, values.count, values.dtype, Device::Cuda}, op, {.stream = stream()}).wait_host();
    device_->copy(values.data, words_, values.bytes());
}

}  // namespace ddp::bench
