#include "worker_lib/bench/measure.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace ddp::bench {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point began) {
    return std::chrono::duration<double, std::micro>(Clock::now() - began).count();
}

/// Makes the calls of one row.
class Calls {
public:
    Calls(ProcessGroup& group, const Call& call, Memory& memory)
        : group_(group), call_(call), memory_(memory), buffers_(memory.buffers_of(call)) {}

    void write_input() { memory_.fill_input(call_, buffers_.in); }
    void call_once() { start(group_, call_, buffers_, memory_.stream()).wait_host(); }
    void synchronize() { group_.barrier().wait(); }

    double timed_call() {
        const auto began = Clock::now();
        call_once();
        return microseconds_since(began);
    }

    /// Queues all calls, then waits for the last. It polls the stream without a pause, because the threads that
    /// complete works poll less often.
    double timed_calls(std::size_t count) {
        const auto began = Clock::now();
        Work last;
        for (std::size_t i = 0; i < count; ++i) last = start(group_, call_, buffers_, memory_.stream());
        last.wait();
        memory_.device()->mark();
        while (!memory_.device()->passed() && !last.done()) std::this_thread::yield();
        const double us = microseconds_since(began);
        last.wait_host();  // throws the error of a call that failed
        return us;
    }

    /// Makes one more call and checks it. Only the first call after filling can be checked: in place a further
    /// all_reduce adds up its own results.
    std::size_t count_wrong_of_all() {
        // Also in place, where the input is only a part of the output: the row before left the right values there.
        memory_.fill_with_junk(buffers_.out);
        write_input();
        call_once();
        const bool one_buffer = call_.collective == Collective::kBroadcast;
        return memory_.sum(memory_.count_wrong(call_, one_buffer ? buffers_.in : buffers_.out));
    }

private:
    ProcessGroup& group_;
    const Call& call_;
    Memory& memory_;
    const Buffers buffers_;
};

Times summarise(std::vector<double> us) {
    std::ranges::sort(us);
    Times times{.median = us[us.size() / 2], .p99 = us[std::min(us.size() - 1, us.size() * 99 / 100)]};
    for (const double time : us) times.mean += time / static_cast<double>(us.size());
    return times;
}

/// rewrite   the input before every call
Times own_times(Calls& calls, const Memory& memory, const Options& options, bool rewrite) {
    if (!memory.on_host() && !rewrite) {
        calls.synchronize();
        return {.mean = calls.timed_calls(options.iterations) / static_cast<double>(options.iterations)};
    }
    std::vector<double> us(options.iterations);
    if (!rewrite) calls.synchronize();
    for (double& time : us) {
        if (rewrite) {  // ranks finish writing at different times, but start together
            calls.write_input();
            calls.synchronize();
        }
        time = calls.timed_call();
    }
    return summarise(std::move(us));
}

}  // namespace

Measured measure(ProcessGroup& group, const Call& call, Memory& memory, const Options& options) {
    Calls calls(group, call, memory);
    Measured measured;
    calls.write_input();
    for (std::size_t i = 0; i < options.warm_up; ++i) calls.call_once();
    const bool is_large = call.count * size_of(call.dtype) >= kRewriteFrom;
    measured.us = own_times(calls, memory, options, options.rewrite.value_or(memory.on_host() && is_large));
    if (options.check && call.collective != Collective::kBarrier) {
        measured.wrong = calls.count_wrong_of_all();
        measured.checked = true;
    }
    auto& [mean, median, p99] = measured.us;
    std::array<double, 3> slowest{mean, median.value_or(0), p99.value_or(0)};
    memory.take_largest(slowest);
    mean = slowest[0];
    if (median) median = slowest[1];
    if (p99) p99 = slowest[2];
    return measured;
}

}  // namespace ddp::bench
