// How much of the time of a plain exchange PowerSgd takes. Start it with ddprun: one rank for each process.
//
//     ddprun --nproc-per-node 2 build/release/bench/bench_power_sgd [RANK [STEPS]]
//
// The gradients are 25 matrices of 512 x 512, 25 MiB. Steps with the reducer's own all_reduce and with PowerSgd, also
// between nodes alone, take turns. A step's time is that of its slowest rank, from the first mark to the end of
// finish_backward; gradients are written before. Prints medians, and their ratios to the plain exchange.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ddp/ddp.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

constexpr std::size_t kMatrices = 25, kSide = 512;

std::vector<ddp::ParamSpec> specs() {
    std::vector<ddp::ParamSpec> all;
    for (std::size_t i = 0; i < kMatrices; ++i)
        all.push_back({.name = "matrix " + std::to_string(i), .count = kSide * kSide, .shape = {kSide, kSide}});
    return all;
}

/// A way to exchange the gradients.
class Exchange {
public:
    Exchange(ddp::Context& context, std::shared_ptr<ddp::PowerSgd> hook)
        : context_(context), hook_(std::move(hook)), reducer_(context.world(), specs(), {.hook = hook_}) {}

    /// Returns the milliseconds of the slowest rank.
    double step(int number) {
        std::uint32_t bits = static_cast<std::uint32_t>(1 + context_.rank() + 1000 * number);
        reducer_.begin_backward();
        for (std::size_t i = 0; i < kMatrices; ++i) {
            for (float& value : reducer_.grad<float>(i)) {
                bits = bits * 1664525u + 1013904223u;
                value = static_cast<float>(bits >> 8) * 0x1p-24f - 0.5f;
            }
        }
        context_.world().barrier().wait();
        const auto began = Clock::now();
        for (std::size_t i = kMatrices; i-- > 0;) reducer_.mark_ready(i);
        reducer_.finish_backward();
        double took = Milliseconds(Clock::now() - began).count();
        context_.world().all_reduce(took, ddp::ReduceOp::Max).wait();
        times_.push_back(took);
        return took;
    }
    [[nodiscard]] double median() const {
        std::vector<double> times(times_.begin() + 2, times_.end());  // the first ones touch new pages
        std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
        return times[times.size() / 2];
    }

private:
    ddp::Context& context_;
    std::shared_ptr<ddp::PowerSgd> hook_;
    ddp::GradientReducer reducer_;
    std::vector<double> times_;
};

/// A whole number of at least 1, or nothing.
std::optional<int> number(const char* text) {
    char* end = nullptr;
    const long value = std::strtol(text, &end, 10);
    return *end == 0 && end != text && value >= 1 && value < 10'000 ? std::optional(static_cast<int>(value))
                                                                    : std::nullopt;
}

}  // namespace

int main(int argc, char** argv) try {
    const auto rank = argc > 1 ? number(argv[1]) : 4;
    const auto steps = argc > 2 ? number(argv[2]) : 9;
    if (!rank || !steps || argc > 3) {
        std::fprintf(stderr, "usage: ddprun --nproc-per-node N bench_power_sgd [RANK [STEPS]], both at least 1\n");
        return 2;
    }
    ddp::Context context = ddp::init_from_env({.backend = ddp::Backend::Native});
    const auto hook = [&](bool between_nodes) {
        return std::make_shared<ddp::PowerSgd>(
            specs(), ddp::PowerSgdOptions{.rank = *rank, .start_step = 0, .between_nodes = between_nodes});
    };
    Exchange plain(context, nullptr), factors(context, hook(false)), between(context, hook(true));
    for (int i = 0; i < *steps + 2; ++i) {
        for (Exchange* const exchange : {&plain, &factors, &between}) exchange->step(i);
    }
    if (context.rank() != 0) return 0;
    std::printf("%d ranks, 25 MiB, factors of rank %d: median ms of %d steps, and its share of the plain exchange\n",
                context.world_size(), *rank, *steps);
    std::printf("all_reduce              %8.1f\n", plain.median());
    std::printf("PowerSgd                %8.1f  %5.3f\n", factors.median(), factors.median() / plain.median());
    std::printf("PowerSgd between nodes  %8.1f  %5.3f\n", between.median(), between.median() / plain.median());
    return 0;
} catch (const ddp::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
