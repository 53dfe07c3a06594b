#include "network.hpp"

#include <string>

#include "cuda/cuda_network.hpp"
#include "support/sgd.hpp"
#include "support/user_error.hpp"

namespace train {
namespace {

class CpuNetwork final : public Network {
public:
    CpuNetwork(const ModelShape& shape, std::uint64_t seed) : model_(shape, seed) {
        for (const auto parameter : model_.parameters()) velocities_.emplace_back(parameter.size());
    }

    [[nodiscard]] std::vector<ddp::Buffer> parameters() override {
        const auto parameters = model_.parameters();
        return {parameters.begin(), parameters.end()};
    }
    [[nodiscard]] std::vector<ddp::Buffer> velocities() override { return {velocities_.begin(), velocities_.end()}; }
    void forward(const Batch& batch) override { loss_ = model_.forward(batch); }
    [[nodiscard]] double loss() override { return loss_; }
    void backward(const Batch& batch, double divisor, const std::vector<ddp::Buffer>& gradients,
                  const std::function<void(std::size_t)>& ready) override {
        std::vector<std::span<float>> views;
        for (const ddp::Buffer& gradient : gradients) views.push_back(gradient.as<float>());
        model_.backward(batch, divisor, views, ready);
    }
    void update(const std::vector<ddp::Buffer>& gradients, ddp::Buffer, float rate) override {
        const auto parameters = model_.parameters();
        for (std::size_t i = 0; i < parameters.size(); ++i)
            sgd_step(parameters[i], velocities_[i], gradients[i].as<float>(), rate);
    }

private:
    Model<float> model_;
    std::vector<std::vector<float>> velocities_;
    double loss_ = 0;
};

}  // namespace

std::unique_ptr<Network> make_cpu_network(const ModelShape& shape, std::uint64_t seed) {
    return std::make_unique<CpuNetwork>(shape, seed);
}

std::unique_ptr<Network> make_network(const Options& options, ddp::Context& context) {
    if (options.device == ddp::Device::Cpu) return make_cpu_network(options.shape, options.seed);
    // The shares of the ranks differ by one window at most, in every step.
    const std::size_t max_rows = options.global_batch / static_cast<std::size_t>(context.world_size()) + 1;
    std::unique_ptr<Network> network;
    std::string problem;
    try {
        network = make_cuda_network(options, context.world().arena(), context.local_rank(), max_rows);
    } catch (const UserError& error) {
        problem = error.what();
    }
    fail_together(problem, context);
    return network;
}

}  // namespace train
