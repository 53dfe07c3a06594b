// Adam whose state is spread over the ranks (ZeRO stage 1): each rank keeps the moments of its part of the parameters.
//
//     ddprun --nproc-per-node 4 zero1
//
// In each step reduce_scatter gives a rank the gradients of its part, summed over the ranks; the rank updates the part,
// and all_gather copies it to the others. That sends as many bytes as an all_reduce, and Adam's moments need only 1/P
// of the memory. The ranks share out the same 64 samples, so that every number of them learns the same.

#include <ddp/ddp.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>
#include <vector>

namespace {

constexpr int kSamples = 64, kWeights = 1001, kSteps = 50;

double input(int sample, int i) { return std::sin(0.37 * sample * (i % 7 + 1) + i); }
double target(int sample) { return std::cos(0.37 * sample) + std::sin(0.74 * sample) / 2; }

/// Adam for a part of the parameters.
class Adam {
public:
    explicit Adam(std::span<double> weights) : weights_(weights), mean_(weights.size()), square_(weights.size()) {}

    void step(std::span<const double> gradients) {
        decay1_ *= 0.9;
        decay2_ *= 0.999;
        for (std::size_t i = 0; i < weights_.size(); ++i) {
            mean_[i] += 0.1 * (gradients[i] - mean_[i]);
            square_[i] += 0.001 * (gradients[i] * gradients[i] - square_[i]);
            weights_[i] -= 0.001 * mean_[i] / (1 - decay1_) / (std::sqrt(square_[i] / (1 - decay2_)) + 1e-8);
        }
    }

private:
    std::span<double> weights_;
    std::vector<double> mean_, square_;
    double decay1_ = 1, decay2_ = 1;
};

}  // namespace

int main() try {
    ddp::Context context = ddp::init_from_env({.backend = ddp::Backend::Native});
    ddp::ProcessGroup& world = context.world();

    // All parts have the same size, so the last one may end with elements that are not used.
    const int part = (kWeights + world.size() - 1) / world.size();
    std::vector<double> weights(part * world.size()), gradients(weights.size());
    const std::span<double> own_weights = std::span(weights).subspan(part * world.rank(), part);
    std::vector<double> own_gradients(part);
    Adam adam(own_weights);  // and not of all weights

    for (int step = 1; step <= kSteps; ++step) {
        double loss = 0;
        std::ranges::fill(gradients, 0);
        for (int sample = world.rank(); sample < kSamples; sample += world.size()) {
            double error = -target(sample);
            for (int i = 0; i < kWeights; ++i) error += weights[i] * input(sample, i);
            loss += error * error / kSamples;
            for (int i = 0; i < kWeights; ++i) gradients[i] += 2 * error * input(sample, i) / kSamples;
        }
        ddp::Work sum = world.all_reduce(loss, ddp::ReduceOp::Sum);  // meanwhile
        world.reduce_scatter(gradients, own_gradients, ddp::ReduceOp::Sum).wait();
        adam.step(own_gradients);
        world.all_gather(own_weights, weights).wait();  // in place: the own part lies where it belongs
        sum.wait();
        if (world.rank() == 0 && step % 10 == 0) std::printf("step %d: loss %.8f\n", step, loss);
    }
} catch (const ddp::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
