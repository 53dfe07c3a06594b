// A model of which each rank keeps a part (FSDP's FULL_SHARD, ZeRO stage 3): a layer is whole only while it computes.
// It resumes from its newest checkpoint, on any number of ranks.
//
//     ddprun --nproc-per-node 4 sharded CHECKPOINT_DIRECTORY

#include <ddp/ddp.hpp>

#include <cmath>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

namespace {

constexpr int kLayers = 3, kWidth = 12, kSamples = 32, kSteps = 50;

/// Layers without biases, and tanh behind each, on every `ranks`-th sample.
class Net {
public:
    Net(int rank, int ranks) : share_(1.0 * kSamples / ranks), values_(kLayers + 1) {
        for (int sample = rank; sample < kSamples; sample += ranks) {
            for (int j = 0; j < kWidth; ++j) {
                values_[0].push_back(std::sin(0.3 * sample * (j % 4 + 1) + j));
                targets_.push_back(std::cos(0.3 * sample + j) / 2);
            }
        }
    }

    void forward(int layer, std::span<const double> weights) {
        std::vector<double>& out = values_[layer + 1];
        out.assign(targets_.size(), 0);
        for (std::size_t k = 0; k < out.size(); ++k) {
            const std::size_t i = k % kWidth, sample = k - i;
            for (int j = 0; j < kWidth; ++j) out[k] += weights[i * kWidth + j] * values_[layer][sample + j];
            out[k] = std::tanh(out[k]);
        }
    }

    /// Returns this rank's share of the loss, and prepares backward.
    double loss() {
        double sum = 0;
        slopes_ = values_[kLayers];
        for (std::size_t k = 0; k < slopes_.size(); ++k) {
            slopes_[k] -= targets_[k];
            sum += slopes_[k] * slopes_[k] / kSamples;
            slopes_[k] *= 2 / share_;  // so that the average of all ranks is the gradient of the loss
        }
        return sum;
    }

    void backward(int layer, std::span<const double> weights, std::span<double> gradients) {
        std::vector<double> below(slopes_.size());
        for (double& gradient : gradients) gradient = 0;
        for (std::size_t k = 0; k < slopes_.size(); ++k) {
            const std::size_t i = k % kWidth, sample = k - i;
            const double out = values_[layer + 1][k], slope = slopes_[k] * (1 - out * out);
            for (int j = 0; j < kWidth; ++j) {
                gradients[i * kWidth + j] += slope * values_[layer][sample + j];
                below[sample + j] += slope * weights[i * kWidth + j];
            }
        }
        slopes_ = below;
    }

private:
    double share_;                             // samples per rank, on average
    std::vector<std::vector<double>> values_;  // of each layer's input, and of the output
    std::vector<double> targets_, slopes_;
};

}  // namespace

int main(int argc, char** argv) try {
    ddp::Context context = ddp::init_from_env({.backend = ddp::Backend::Native});
    Net net(context.rank(), context.world_size());

    std::vector<std::vector<ddp::ParamSpec>> units;  // what computes together: a layer
    for (int layer = 0; layer < kLayers; ++layer)
        units.push_back({{"layer" + std::to_string(layer), kWidth * kWidth, ddp::DType::F64}});
    ddp::ShardedParameters model(context.world(), units, {.sharding = ddp::Sharding::Full});
    model.fill([](int layer, int begin, ddp::Buffer part) {  // no rank ever holds the whole model
        for (double& weight : part.as<double>()) weight = 0.5 * std::sin(1.3 * begin++ + layer);
    });
    std::vector<double> mean(model.size()), square(model.size());  // of AdamW, for this rank's part

    const auto state = [&] {
        return ddp::concat(model.state(), model.state(".exp_avg", mean), model.state(".exp_avg_sq", square));
    };
    ddp::Checkpointer checkpoints(argc > 1 ? argv[1] : "sharded-checkpoints", context);
    const std::size_t saved = checkpoints.latest().value_or(0);
    if (saved > 0) checkpoints.load(saved, state());

    for (std::size_t step = saved + 1; step <= kSteps; ++step) {
        for (int layer = 0; layer < kLayers; ++layer) {
            const auto unit = model.forward(layer);  // whole from here to the brace
            net.forward(layer, unit.param<double>(0));
        }
        double loss = net.loss();
        ddp::Work sum = context.world().all_reduce(loss, ddp::ReduceOp::Sum);  // meanwhile
        model.begin_backward();
        for (int layer = kLayers; layer-- > 0;) {
            const auto unit = model.backward(layer);  // its gradients are reduced from the brace on
            net.backward(layer, unit.param<double>(0), unit.grad<double>(0));
        }
        model.finish_backward();
        const double norm = model.clip(1.0);
        sum.wait();
        if (!std::isfinite(norm)) continue;  // the same on all ranks: the step is left out

        const double correction1 = 1 - std::pow(0.9, step), correction2 = 1 - std::pow(0.999, step), rate = 0.02;
        std::size_t k = 0;
        for (const ddp::Shard& shard : model.shards()) {
            const std::span<double> weights = shard.values.as<double>(), gradients = shard.grad.as<double>();
            for (std::size_t i = 0; i < weights.size(); ++i, ++k) {
                mean[k] += 0.1 * (gradients[i] - mean[k]);
                square[k] += 0.001 * (gradients[i] * gradients[i] - square[k]);
                weights[i] -=
                    rate * (0.01 * weights[i] + mean[k] / correction1 / (std::sqrt(square[k] / correction2) + 1e-8));
            }
        }
        if (context.rank() == 0 && step % 10 == 0) std::printf("step %zu: loss %.8f, norm %.6f\n", step, loss, norm);
        if (step % 20 == 0) checkpoints.save_async(step, state());  // each rank writes its part, of one file
    }
} catch (const ddp::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
