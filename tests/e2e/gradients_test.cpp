// The reducer's gradients beside those of PyTorch's DistributedDataParallel: the same model, weights and data.

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <sstream>
#include <vector>

#include "ddp/ddp.hpp"
#include "tests/catch.hpp"
#include "tests/e2e/ddp_script.hpp"
#include "tests/e2e/process.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"

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

// A layer that is used twice, one that only rank 0 uses, and one that no rank uses. Prints each rank's own gradients,
// and DDP's result on rank 1: "-" for none.
const char* const kUnevenScript = R"(
import copy
import os
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for k, name in enumerate(["first", "tied", "of_rank_0", "unused"]):
            layer = torch.nn.Linear(6, 6)
            with torch.no_grad():
                for p in layer.parameters():
                    p.copy_(torch.tensor([((i * 37 + k * 101) % 199 - 99) / 128 for i in range(p.numel())]).view_as(p))
            self.add_module(name, layer)

    def forward(self, x):
        x = torch.tanh(self.first(x))
        x = torch.tanh(self.tied(torch.tanh(self.tied(x))))
        return self.of_rank_0(x) if dist.get_rank() == 0 else x

def gradients(model, net):
    x = torch.tensor([((i * 29 + dist.get_rank() * 71) % 199 - 99) / 128 for i in range(24)]).view(4, 6)
    (model(x) ** 2).mean().backward()
    grads = [p.grad for p in net.parameters()]
    return ["-" if g is None else " ".join(f"{v:.9g}" for v in g.flatten().tolist()) for g in grads]

dist.init_process_group("gloo", init_method="env://")
net = Net()
bare = copy.deepcopy(net)
own = gradients(bare, bare)
model = DistributedDataParallel(net, bucket_cap_mb=1e-4, find_unused_parameters=True)
if os.environ["HOOK"] == "fp16":
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
averages = gradients(model, net)
everybody = [None] * dist.get_world_size()
dist.all_gather_object(everybody, own)
if dist.get_rank() == 1:
    for lines in everybody + [averages]:
        print("\n".join(lines), flush=True)
dist.barrier()
os._exit(0)  # gloo's threads may still hold what the hook made, and PyTorch then aborts as Python is taken down
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

/// Returns the gradients after the reducer, all parameters one after the other.
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

namespace {

using Lines = std::vector<std::optional<std::vector<double>>>;  // by parameter; nothing: it has no gradient
constexpr std::size_t kTied = 2;                                // its weight; its bias follows
constexpr std::size_t kUnevenParams = 8;

/// Runs DDP. Returns the ranks' own gradients, then DDP's.
std::vector<Lines> parse_lines(const std::string& text) {
    std::istringstream stream(text);
    std::vector<Lines> all;
    std::size_t number = 0;
    for (std::string line; std::getline(stream, line); ++number) {
        if (number % kUnevenParams == 0) all.emplace_back();
        all.back().push_back(line == "-" ? std::nullopt : std::optional(parse(line)));
    }
    return all;
}

/// Returns the ranks' own gradients after the reducer.
Lines reduced(ddp::Context& context, const std::vector<Lines>& of_ranks, std::shared_ptr<ddp::CommHook> hook) {
    std::vector<ddp::ParamSpec> specs;
    for (std::size_t i = 0; i < kUnevenParams; ++i) {
        specs.push_back({"p" + std::to_string(i), i % 2 == 0 ? std::size_t{36} : std::size_t{6}});
        if (i == kTied || i == kTied + 1) specs.back().uses = 2;
    }
    ddp::GradientReducer reducer(context.world(), specs,
                                 {.limits = {.bucket_cap_bytes = 100}, .find_unused = true, .hook = std::move(hook)});
    const Lines& own = of_ranks[static_cast<std::size_t>(context.rank())];
    reducer.begin_backward();
    for (std::size_t i = kUnevenParams; i-- > 0;) {
        if (!own[i]) {
            reducer.mark_unused(i);
            continue;
        }
        std::transform(own[i]->begin(), own[i]->end(), static_cast<float*>(reducer.grad(i).data),
                       [](double value) { return static_cast<float>(value); });
        for (int use = 0; use < specs[i].uses; ++use) reducer.mark_ready(i);
    }
    const ddp::BackwardResult step = reducer.finish_backward();
    Lines averages;
    for (std::size_t i = 0; i < kUnevenParams; ++i) {
        const auto* values = static_cast<const float*>(reducer.grad(i).data);
        averages.emplace_back();
        if (step.used[i]) averages.back().emplace(values, values + specs[i].count);
    }
    return averages;
}

}  // namespace

TEST_CASE("shared, unused and compressed gradients are averaged as by PyTorch's DistributedDataParallel", "[e2e]") {
    const e2e::Sandbox sandbox("uneven-gradients");
    if (!e2e::torch_is_installed(sandbox)) {
        WARN("SKIPPED: python3-torch is not installed");
        return;
    }
    const std::string hook = GENERATE(as<std::string>(), "none", "fp16");  // PyTorch has bf16 for GPUs only
    CAPTURE(hook);
    e2e::write_file(sandbox.path() / "script.py", kUnevenScript);
    const auto torch =
        e2e::run(sandbox, {.argv = {(e2e::bin() / "ddprun").string(), "--nproc_per_node", "3", "script.py"},
                           .env = {{"HOOK", hook}},
                           .directory = sandbox.path()});
    CAPTURE(torch.err, torch.out);
    REQUIRE(torch.status.exit_code() == 0);
    std::vector<Lines> of_ranks = parse_lines(torch.out);
    REQUIRE(of_ranks.size() == 4);
    const Lines expected = of_ranks.back();
    of_ranks.pop_back();
    const auto ours = ddp::testing::run_ranks({.ranks_per_node = {2, 1}}, [&](ddp::Context& context) {
        return reduced(context, of_ranks, hook == "none" ? nullptr : ddp::compress(ddp::DType::F16));
    });
    // PyTorch's hooks round thrice: what is sent, what is divided, and each sum. One unit in the last place of each.
    const double tolerance = hook == "none" ? 1e-6 : 0x3p-10;
    for (const Lines& averages : ours) {
        for (std::size_t i = 0; i < kUnevenParams; ++i) {
            CAPTURE(i);
            REQUIRE(averages[i].has_value() == expected[i].has_value());
            for (std::size_t j = 0; expected[i] && j < expected[i]->size(); ++j) {
                double scale = 0;  // sums may cancel each other, roundings do not
                for (const Lines& own : of_ranks) scale += own[i] ? std::abs((*own[i])[j]) / 3 : 0;
                CHECK(std::abs((*averages[i])[j] - (*expected[i])[j]) <= tolerance * scale + 1e-7);
            }
        }
        CHECK(averages == ours.front());
    }
    CHECK(sandbox.leftovers() == "");
}
