// Training of 12 x Linear(2048) with Adam by ShardedParameters, and the exchanges of one unit of 16 MiB. Start it with
// ddprun: one rank for each process. bench_sharding.py runs it beside PyTorch.
//
//     ddprun --nproc_per_node 2 build/release/bench/bench_sharding step full|grad|optimizer|none mapped|copied STEPS
//     ddprun --nproc_per_node 2 build/release/bench/bench_sharding unit full mapped|copied CALLS
//
// Rank 0 prints "step MS PSS_MIB": the median over the steps of the slowest rank's time, and the largest average of the
// ranks' memory since init_from_env(); or "gather US" and "reduce_scatter US", medians of the slowest rank. A gather is
// the time from the end of the updates until a scope has the unit, and "gather_read US" until it has been read, too.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "ddp/ddp.hpp"

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLayers = 12;
constexpr std::size_t kWidth = 2048;
constexpr std::size_t kSamples = 4;  // of a rank: few, so that the exchange counts
using Matrix = std::vector<float>;   // kSamples x kWidth

double ms_since(Clock::time_point begin) {
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

double own_pss_mib() {
    std::ifstream rollup("/proc/self/smaps_rollup");
    for (std::string line; std::getline(rollup, line);) {
        if (line.starts_with("Pss:")) return std::stod(line.substr(4)) / 1024;
    }
    return 0;
}

double of_all(ddp::Context& context, double value, ddp::ReduceOp op) {
    context.world().all_reduce(value, op).wait();
    return value;
}

/// out = in x weight', in blocks of 4 samples.
void forward(const float* __restrict weight, const Matrix& in, Matrix& out) {
    for (std::size_t i = 0; i < kWidth; ++i) {
        const float* const row = weight + i * kWidth;
        for (std::size_t n = 0; n < kSamples; n += 4) {
            float sums[4] = {};
            const float* const x = &in[n * kWidth];
            for (std::size_t j = 0; j < kWidth; ++j) {
                for (std::size_t k = 0; k < 4; ++k) sums[k] += row[j] * x[k * kWidth + j];
            }
            for (std::size_t k = 0; k < 4; ++k) out[(n + k) * kWidth + i] = sums[k];
        }
    }
}

/// grad = delta' x in; below = delta x weight.
void backward(const float* __restrict weight, const Matrix& in, const Matrix& delta, float* __restrict grad,
              Matrix& below) {
    std::ranges::fill(below, 0.0f);
    for (std::size_t i = 0; i < kWidth; i += 4) {
        for (std::size_t k = i; k < i + 4; ++k) {
            float* const row = grad + k * kWidth;
            for (std::size_t j = 0; j < kWidth; ++j) row[j] = delta[k] * in[j];
            for (std::size_t n = 1; n < kSamples; ++n) {
                const float d = delta[n * kWidth + k];
                for (std::size_t j = 0; j < kWidth; ++j) row[j] += d * in[n * kWidth + j];
            }
        }
        const float* const w = weight + i * kWidth;
        for (std::size_t n = 0; n < kSamples; ++n) {
            const float* const d = &delta[n * kWidth + i];
            float* const to = &below[n * kWidth];
            for (std::size_t j = 0; j < kWidth; ++j)
                to[j] += d[0] * w[j] + d[1] * w[kWidth + j] + d[2] * w[2 * kWidth + j] + d[3] * w[3 * kWidth + j];
        }
    }
}

class Trainer {
public:
    Trainer(ddp::Context& context, const ddp::ShardOptions& options)
        : model_(context.world(), units(), options),
          first_(model_.size()),
          second_(model_.size()),
          activations_(kLayers + 1, Matrix(kSamples * kWidth)) {
        model_.fill([](std::size_t param, std::size_t begin, ddp::Buffer part) {
            const auto values = part.as<float>();
            for (std::size_t i = 0; i < values.size(); ++i)
                values[i] = float((begin + i + param) * 2654435761u % 1024) / 1024 * 0.04f - 0.02f;
        });
        for (std::size_t i = 0; i < activations_[0].size(); ++i)
            activations_[0][i] = float(i % 7) - 3 + float(context.rank());
    }

    void compute() {
        for (std::size_t u = 0; u < kLayers; ++u) {
            const auto unit = model_.forward(u);
            forward(unit.param<float>(0).data(), activations_[u], activations_[u + 1]);
        }
        Matrix delta = activations_[kLayers], below(delta.size());
        model_.begin_backward();
        for (std::size_t u = kLayers; u-- > 0;) {
            const auto unit = model_.backward(u);
            backward(unit.param<float>(0).data(), activations_[u], delta, unit.grad<float>(0).data(), below);
            std::swap(delta, below);
        }
        model_.finish_backward();
    }

    void update() {
        ++steps_;
        const auto bias1 = float(1 - std::pow(0.9, steps_)), bias2 = float(1 - std::pow(0.999, steps_));
        std::size_t k = 0;
        for (const ddp::Shard& shard : model_.shards()) {
            float* __restrict values = shard.values.as<float>().data();
            const float* __restrict grads = shard.grad.as<float>().data();
            float* __restrict first = &first_[k];
            float* __restrict second = &second_[k];
            for (std::size_t i = 0; i < shard.values.count; ++i) {
                first[i] = 0.9f * first[i] + 0.1f * grads[i];
                second[i] = 0.999f * second[i] + 0.001f * grads[i] * grads[i];
                values[i] -= 1e-4f * (first[i] / bias1) / (std::sqrt(second[i] / bias2) + 1e-8f);
            }
            k += shard.values.count;
        }
    }

private:
    static std::vector<std::vector<ddp::ParamSpec>> units() {
        std::vector<std::vector<ddp::ParamSpec>> units;
        for (std::size_t u = 0; u < kLayers; ++u)
            units.push_back({{"fc" + std::to_string(u) + ".weight", kWidth * kWidth}});
        return units;
    }

    ddp::ShardedParameters model_;
    std::vector<float> first_, second_;
    std::vector<Matrix> activations_;
    int steps_ = 0;
};

double median(std::vector<double> values) {
    std::ranges::nth_element(values, values.begin() + std::ptrdiff_t(values.size() / 2));
    return values[values.size() / 2];
}

void time_steps(ddp::Context& context, const ddp::ShardOptions& options, int steps) {
    context.world().barrier().wait();
    const double before = own_pss_mib();
    Trainer trainer(context, options);
    std::vector<double> times;
    double peak = 0;
    for (int step = 0; step < steps + 2; ++step) {
        context.world().barrier().wait();
        const auto begin = Clock::now();
        trainer.compute();
        trainer.update();
        const double time = of_all(context, ms_since(begin), ddp::ReduceOp::Max);
        if (step >= 2) times.push_back(time);  // the first ones fault pages in
        context.world().barrier().wait();
        peak = std::max(peak, of_all(context, own_pss_mib() - before, ddp::ReduceOp::Avg));
    }
    if (context.rank() == 0) std::printf("step %.2f %.1f\n", median(times), peak);
}

void time_unit(ddp::Context& context, const ddp::ShardOptions& options, int calls) {
    constexpr std::size_t kElements = 4u << 20;  // 16 MiB
    // The unit in between takes the block of the first one where units are copied.
    ddp::ShardedParameters model(context.world(), {{{"timed", kElements}}, {{"other", kElements}}}, options);
    std::vector<double> gather, read, reduce;
    float sum = 0;
    for (int call = 0; call < calls + 3; ++call) {
        for (const ddp::Shard& shard : model.shards()) std::ranges::fill(shard.values.as<float>(), float(call));
        context.world().barrier().wait();
        auto begin = Clock::now();
        {
            const auto unit = model.forward(0);
            gather.push_back(of_all(context, 1e3 * ms_since(begin), ddp::ReduceOp::Max));
        }
        model.changed();
        context.world().barrier().wait();
        begin = Clock::now();
        {
            const auto unit = model.forward(0);
            const auto values = unit.param<float>(0);
            float sums[16] = {};
            for (std::size_t i = 0; i < kElements; i += 16) {
                for (std::size_t k = 0; k < 16; ++k) sums[k] += values[i + k];
            }
            for (const float one : sums) sum += one;
            read.push_back(of_all(context, 1e3 * ms_since(begin), ddp::ReduceOp::Max));
        }
        model.begin_backward();
        {
            const auto unit = model.backward(1);
            std::ranges::fill(unit.grad<float>(0), 1.0f);
        }
        {
            const auto unit = model.backward(0);
            std::ranges::fill(unit.grad<float>(0), 1.0f);
            context.world().barrier().wait();
            begin = Clock::now();
        }
        model.finish_backward();
        reduce.push_back(of_all(context, 1e3 * ms_since(begin), ddp::ReduceOp::Max));
    }
    if (context.rank() != 0) return;
    const auto print = [](const char* name, std::vector<double> times) {
        times.erase(times.begin(), times.begin() + 3);
        std::printf("%s %.1f\n", name, median(times));
    };
    print("gather", gather);
    print("gather_read", read);
    print("reduce_scatter", reduce);
    if (sum < 0) std::printf("unexpected\n");  // so that the reads are not left out
}

}  // namespace

int main(int argc, char** argv) {
    const std::map<std::string, ddp::Sharding> strategies{{"full", ddp::Sharding::Full},
                                                          {"grad", ddp::Sharding::GradOp},
                                                          {"optimizer", ddp::Sharding::Optimizer},
                                                          {"none", ddp::Sharding::None}};
    const std::vector<std::string> words(argv + 1, argv + argc);
    const bool fits = words.size() == 4 && (words[0] == "step" || words[0] == "unit") &&
                      strategies.contains(words[1]) && (words[2] == "mapped" || words[2] == "copied") &&
                      std::atoi(words[3].c_str()) > 0;
    if (!fits) {
        std::fprintf(stderr,
                     "usage: ddprun --nproc_per_node N bench_sharding step|unit full|grad|optimizer|none "
                     "mapped|copied COUNT\n");
        return 2;
    }
    ddp::Context context = ddp::init_from_env({.backend = ddp::Backend::Native});
    const ddp::ShardOptions options{
        .sharding = strategies.at(words[1]), .prefetch = words[0] == "unit" ? 0 : 1, .mapped = words[2] == "mapped"};
    if (words[0] == "step")
        time_steps(context, options, std::atoi(words[3].c_str()));
    else
        time_unit(context, options, std::atoi(words[3].c_str()));
    return 0;
}
