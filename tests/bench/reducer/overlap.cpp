// How much of the exchange of gradients hides behind backward. Start it with ddprun: one rank for each process.
//
//     ddprun --nproc_per_node 2 build/release/bench/bench_overlap [BACKWARD_MS [STEPS]]
//
// A backward of so many milliseconds of CPU time (it takes longer where ranks share a core) writes the gradients of
// ResNet-50 one after the other. Three kinds of step take turns: without exchange, with the exchange after it, and with
// each gradient marked when it is ready. Times are medians over the steps: a step's of the slowest rank; exposed is
// what the last rank to end its backward waits after its last gradient, that is the least of all ranks: the others wait
// for its backward, too. What the first one waits is beside it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "ddp/ddp.hpp"
#include "tests/bench/resnet50.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

enum class Exchange { kNone, kAfter, kOverlapped };

double own_cpu_ms() {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return double(now.tv_sec) * 1e3 + double(now.tv_nsec) / 1e6;
}

/// Computes in registers for so much of this thread's own time: other ranks may take the core meanwhile, as they do in
/// training.
void compute(double cpu_ms) {
    const double end = own_cpu_ms() + cpu_ms;
    volatile double result = 1;
    while (own_cpu_ms() < end) {
        double x = result;
        for (int i = 0; i < 2000; ++i) x = x * 0.999 + 0.001;
        result = x;
    }
}

class Trainer {
public:
    Trainer(ddp::Context& context, double backward_ms)
        : context_(context), backward_ms_(backward_ms), reducer_(context.world(), specs()) {}

    struct Times {
        double step_ms;
        double exposed_ms;  ///< what the rank that waits least has waited
        double longest_ms;  ///< and the one that waits longest
    };
    Times step(Exchange exchange) {
        context_.world().barrier().wait();
        const auto began = Clock::now();
        auto computed = began;
        reducer_.begin_backward(exchange != Exchange::kNone);
        for (std::size_t i = counts_.size(); i-- > 0;) {
            write_gradient(i);
            computed = Clock::now();  // ReducerStats::exposed begins later: buckets may be done by then
            if (exchange == Exchange::kOverlapped) reducer_.mark_ready(i);
        }
        if (exchange != Exchange::kOverlapped)
            for (std::size_t i = counts_.size(); i-- > 0;) reducer_.mark_ready(i);
        reducer_.finish_backward();
        const auto ended = Clock::now();
        double step_ms = Milliseconds(ended - began).count();
        double exposed_ms = Milliseconds(ended - computed).count();
        double longest_ms = exposed_ms;
        context_.world().all_reduce(step_ms, ddp::ReduceOp::Max).wait();
        context_.world().all_reduce(exposed_ms, ddp::ReduceOp::Min).wait();
        context_.world().all_reduce(longest_ms, ddp::ReduceOp::Max).wait();
        return {step_ms, exposed_ms, longest_ms};
    }

private:
    std::vector<ddp::ParamSpec> specs() const {
        std::vector<ddp::ParamSpec> all;
        for (std::size_t i = 0; i < counts_.size(); ++i)
            all.push_back({.name = "parameter " + std::to_string(i), .count = counts_[i]});
        return all;
    }
    void write_gradient(std::size_t i) {
        auto* const values = static_cast<float*>(reducer_.grad(i).data);
        const double share = double(counts_[i]) / double(elements_);
        const double began = own_cpu_ms();
        std::fill_n(values, counts_[i], float(context_.rank()));
        compute(share * backward_ms_ - (own_cpu_ms() - began));
    }

    ddp::Context& context_;
    const double backward_ms_;
    const std::vector<std::size_t> counts_ = ddprun::bench::resnet50();
    const std::size_t elements_ = std::accumulate(counts_.begin(), counts_.end(), std::size_t{0});
    ddp::GradientReducer reducer_;
};

double median(std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + std::ptrdiff_t(values.size() / 2), values.end());
    return values[values.size() / 2];
}

/// A positive number, or nothing.
std::optional<double> number(const char* text) {
    char* end = nullptr;
    const double value = std::strtod(text, &end);
    return *end == 0 && end != text && value > 0 ? std::optional(value) : std::nullopt;
}

}  // namespace

int main(int argc, char** argv) {
    const auto backward_ms = argc > 1 ? number(argv[1]) : 200.0;
    const auto steps = argc > 2 ? number(argv[2]) : 15.0;
    if (!backward_ms || !steps || *steps < 1 || argc > 3) {
        std::fprintf(stderr,
                     "usage: ddprun --nproc_per_node N bench_overlap [BACKWARD_MS [STEPS]], at least one step\n");
        return 2;
    }
    ddp::Context context = ddp::init_from_env({.backend = ddp::Backend::Native});
    Trainer trainer(context, *backward_ms);
    constexpr Exchange kAll[] = {Exchange::kNone, Exchange::kAfter, Exchange::kOverlapped};
    std::vector<double> step_ms[3], exposed_ms[3], longest_ms[3];
    for (int i = 0; i < int(*steps) + 2; ++i) {
        for (std::size_t kind = 0; kind < 3; ++kind) {
            const auto times = trainer.step(kAll[kind]);
            if (i < 2) continue;  // first page faults
            step_ms[kind].push_back(times.step_ms);
            exposed_ms[kind].push_back(times.exposed_ms);
            longest_ms[kind].push_back(times.longest_ms);
        }
    }
    if (context.rank() != 0) return 0;
    const double none = median(step_ms[0]), after = median(step_ms[1]), overlapped = median(step_ms[2]);
    const double exposed_after = median(exposed_ms[1]), exposed = median(exposed_ms[2]);
    std::printf("%d ranks, ResNet-50's gradients (102 MB), backward of %.0f ms of CPU time\n", context.world_size(),
                *backward_ms);
    std::printf("                        step ms  exposed ms  longest wait ms\n");
    std::printf("no exchange          %10.1f           -                -\n", none);
    std::printf("exchange after it    %10.1f  %10.1f       %10.1f\n", after, exposed_after, median(longest_ms[1]));
    std::printf("overlapped           %10.1f  %10.1f       %10.1f\n", overlapped, exposed, median(longest_ms[2]));
    std::printf("exposed: %.0f %% of the exchange that nothing hides; a step takes %.2f of the time\n",
                100 * exposed / exposed_after, overlapped / after);
    return 0;
}
