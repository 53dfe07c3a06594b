// The reducer's gradients beside those of PyTorch's DistributedDataParallel: the same model, weights and data.

#include <array>
#include <cmath>
#include <sstream>
#include <vector>

#include "ddp/ddp.hpp"
#include "tests/catch.hpp"
#include "tests/e2e/ddp_script.hpp"
#include "tests/e2e/process.hpp"
#include "tests/unit/worker_lib/local_world.hpp"

namespace {

// Each micro-batch is scaled by 1 / MICRO_BATCHES, so that the gradient is that of the whole batch.
const char* const kScript = R"(
import os
import torch
import torch.distributed as dist
from contextlib import nullcontext
from torch.nn.parallel import DistributedDataParallel

def fill(count, seed):
    return torch.tensor([((i * 37 + seed * 101) % 199 - 99) / 128 for i in range(count)])

dist.init_process_group("gloo", init_method="env://")
rank = dist.get_rank()
micro_batches = int(os.environ["MICRO_BATCHES"])
net = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
with torch.no_grad():
    for k, p in enumerate(net.parameters()):
        p.copy_(fill(p.numel(), k).view_as(p))
model = DistributedDataParallel(net, bucket_cap_mb=1e-4)
for m in range(micro_batches):
    x = fill(4 * 6, 10 + 7 * rank + m).view(4, 6)
    y = fill(4 * 3, 60 + 7 * rank + m).view(4, 3)
    with model.no_sync() if m + 1 < micro_batches else nullcontext():
        ((model(x) - y) ** 2).mean().div(micro_batches).backward()
if rank == 0:
    print(" ".join(f"{v:.9g}" for p in net.parameters() for v in p.grad.flatten().tolist()), flush=True)
dist.destroy_process_group()
)";

constexpr std::size_t kIn = 6;
constexpr std::size_t kHidden = 5;
constexpr std::size_t kOut = 3;
constexpr std::size_t kBatch = 4;
constexpr std::array<std::size_t, 4> kCounts{kHidden * kIn, kHidden, kOut* kHidden, kOut};  // weights, bias, twice

std::vector<double> fill(std::size_t count, std::size_t seed) {
    std::vector<double> values(count);
    for (std::size_t i = 0; i < count; ++i) {
        values[i] = (static_cast<double>((i * 37 + seed * 101) % 199) - 99) / 128;
    }
    return values;
}

using Gradients = std::array<std::vector<double>, 4>;

/// Adds `scale` times the gradients of the mean square error of one micro-batch.
void add_gradients(std::size_t rank, std::size_t micro_batch, double scale, Gradients& sum) {
    const auto w1 = fill(kCounts[0], 0), b1 = fill(kCounts[1], 1), w2 = fill(kCounts[2], 2), b2 = fill(kCounts[3], 3);
    const auto x = fill(kBatch * kIn, 10 + 7 * rank + micro_batch);
    const auto y = fill(kBatch * kOut, 60 + 7 * rank + micro_batch);
    for (std::size_t s = 0; s < kBatch; ++s) {
        std::array<double, kHidden> hidden{};
        std::array<double, kHidden> back{};
        for (std::size_t h = 0; h < kHidden; ++h) {
            hidden[h] = b1[h];
            for (std::size_t i = 0; i < kIn; ++i) hidden[h] += w1[h * kIn + i] * x[s * kIn + i];
            hidden[h] = std::tanh(hidden[h]);
        }
        for (std::size_t o = 0; o < kOut; ++o) {
            double value = b2[o];
            for (std::size_t h = 0; h < kHidden; ++h) value += w2[o * kHidden + h] * hidden[h];
            const double error = scale * 2 * (value - y[s * kOut + o]) / (kBatch * kOut);
            sum[3][o] += error;
            for (std::size_t h = 0; h < kHidden; ++h) {
                sum[2][o * kHidden + h] += error * hidden[h];
                back[h] += error * w2[o * kHidden + h];
            }
        }
        for (std::size_t h = 0; h < kHidden; ++h) {
            back[h] *= 1 - hidden[h] * hidden[h];
            sum[1][h] += back[h];
            for (std::size_t i = 0; i < kIn; ++i) sum[0][h * kIn + i] += back[h] * x[s * kIn + i];
        }
    }
}

/// What the reducer leaves, all parameters one after the other.
std::vector<float> reduced_gradients(ddp::Context& context, std::size_t micro_batches) {
    std::vector<ddp::ParamSpec> specs;
    Gradients local;
    for (std::size_t k = 0; k < kCounts.size(); ++k) {
        specs.push_back({"p" + std::to_string(k), kCounts[k]});
        local[k].assign(kCounts[k], 0);
    }
    ddp::GradientReducer reducer(context.world(), specs, {.limits = {.bucket_cap_bytes = 100}});
    for (std::size_t m = 0; m < micro_batches; ++m) {
        add_gradients(static_cast<std::size_t>(context.rank()), m, 1.0 / static_cast<double>(micro_batches), local);
        reducer.begin_backward(m + 1 == micro_batches);
        for (std::size_t k = kCounts.size(); k-- > 0;) {
            std::copy(local[k].begin(), local[k].end(), static_cast<float*>(reducer.grad(k).data));
            reducer.mark_ready(k);
        }
        reducer.finish_backward();
    }
    std::vector<float> all;
    for (std::size_t k = 0; k < kCounts.size(); ++k) {
        const auto* values = static_cast<const float*>(reducer.grad(k).data);
        all.insert(all.end(), values, values + kCounts[k]);
    }
    return all;
}

std::vector<double> parse(const std::string& text) {
    std::istringstream stream(text);
    std::vector<double> values;
    for (double value = 0; stream >> value;) values.push_back(value);
    return values;
}

}  // namespace

TEST_CASE("gradients are those of PyTorch's DistributedDataParallel", "[e2e]") {
    const e2e::Sandbox sandbox("gradients");
    if (!e2e::torch_is_installed(sandbox)) {
        WARN("SKIPPED: python3-torch is not installed");
        return;
    }
    const std::size_t micro_batches = GENERATE(1u, 3u);
    CAPTURE(micro_batches);
    e2e::write_file(sandbox.path() / "script.py", kScript);
    const auto torch =
        e2e::run(sandbox, {.argv = {(e2e::bin() / "ddprun").string(), "--nproc_per_node", "3", "script.py"},
                           .env = {{"MICRO_BATCHES", std::to_string(micro_batches)}},
                           .directory = sandbox.path()});
    CAPTURE(torch.out, torch.err);
    REQUIRE(torch.status.exit_code() == 0);
    const std::vector<double> expected = parse(torch.out);
    const auto ours = ddp::testing::run_ranks(
        {.ranks_per_node = {2, 1}}, [&](ddp::Context& context) { return reduced_gradients(context, micro_batches); });
    for (const auto& gradients : ours) {
        REQUIRE(gradients.size() == expected.size());
        for (std::size_t i = 0; i < expected.size(); ++i) {
            CAPTURE(i);
            CHECK(std::abs(gradients[i] - expected[i]) <= 1e-6 * std::max(1.0, std::abs(expected[i])));
        }
        CHECK(gradients == ours.front());
    }
    CHECK(sandbox.leftovers() == "");
}
