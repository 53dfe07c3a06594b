#include "worker_lib/bench/measure.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <span>
#include <vector>

#include "worker_lib/bench/pattern.hpp"

namespace ddp::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kAlignBytes = 128;
constexpr int kJunk = 0x5a;  // so that a call that does nothing cannot pass on what the one before it left

void call_once(ProcessGroup& group, const Call& call, const Buffers& buffers) {
    start(group, call, buffers).wait_host();
}

/// In place an all_reduce adds up again and again what it wrote: only the first call after filling can be checked.
std::size_t count_wrong_of_all(ProcessGroup& group, const Call& call, const Buffers& buffers) {
    fill_input(call, buffers.in);
    if (!call.in_place && buffers.out.count > 0) std::memset(buffers.out.data, kJunk, buffers.out.bytes());
    call_once(group, call, buffers);
    std::uint64_t wrong = count_wrong(call, call.collective == Collective::kBroadcast ? buffers.in : buffers.out);
    group.all_reduce(buffer(wrong), ReduceOp::Sum).wait();
    return wrong;
}

Times summarise(std::vector<double> us) {
    std::ranges::sort(us);
    Times times;
    for (const double time : us) times.mean += time / static_cast<double>(us.size());
    times.median = us[us.size() / 2];
    times.p99 = us[std::min(us.size() - 1, us.size() * 99 / 100)];
    return times;
}

}  // namespace

Memory::Memory(ProcessGroup& group, std::size_t bytes, bool foreign) {
    const std::size_t padded = (bytes / kAlignBytes + 1) * kAlignBytes;
    device = group.backend() == Backend::Nccl ? Device::Cuda : Device::Cpu;
    if (foreign && device == Device::Cpu) {
        owned_ = true;
        input = std::aligned_alloc(kAlignBytes, padded);
        output = std::aligned_alloc(kAlignBytes, padded);
        if (input == nullptr || output == nullptr) throw std::bad_alloc();
    } else {
        input = group.arena().allocate(padded);
        output = group.arena().allocate(padded);
    }
}

Memory::~Memory() {
    if (!owned_) return;
    std::free(input);
    std::free(output);
}

Measured measure(ProcessGroup& group, const Call& call, const Memory& memory, const Options& options) {
    const Buffers buffers = place(call, memory.input, memory.output, memory.device);
    const bool host = memory.device == Device::Cpu;
    Measured measured;
    if (host) fill_input(call, buffers.in);
    for (std::size_t i = 0; i < options.warm_up; ++i) call_once(group, call, buffers);

    std::vector<double> us(options.iterations);
    if (host && options.rewrite) {  // ranks finish writing at different times: they start together
        for (double& time : us) {
            fill_input(call, buffers.in);
            group.barrier().wait();
            const auto began = Clock::now();
            call_once(group, call, buffers);
            time = std::chrono::duration<double, std::micro>(Clock::now() - began).count();
        }
    } else {
        group.barrier().wait();
        for (double& time : us) {
            const auto began = Clock::now();
            call_once(group, call, buffers);
            time = std::chrono::duration<double, std::micro>(Clock::now() - began).count();
        }
    }
    const Times own = summarise(std::move(us));
    if (host && options.check && call.collective != Collective::kBarrier) {
        measured.wrong = count_wrong_of_all(group, call, buffers);
        measured.checked = true;
    }
    std::array<double, 3> slowest{own.mean, own.median, own.p99};
    if (host) group.all_reduce(buffer(std::span<double>(slowest)), ReduceOp::Max).wait();
    measured.us = {slowest[0], slowest[1], slowest[2]};
    return measured;
}

}  // namespace ddp::bench
