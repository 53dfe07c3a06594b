#include "network.hpp"

#include <string>

#include "cuda/cuda_network.hpp"
#include "support/optimizer.hpp"
#include "support/user_error.hpp"

namespace train {
namespace {

class CpuNetwork final : public Network {
public:
    explicit CpuNetwork(const Options& options) : model_(options.shape, options.seed), optimizer_(options.optimizer) {
        for (const auto parameter : model_.parameters()) {
            first_.emplace_back(parameter.size());
            second_.emplace_back(optimizer_ == Optimizer::kAdamW ? parameter.size() : 0);
        }
    }

    [[nodiscard]] std::vector<ddp::Buffer> parameters() override {
        const auto parameters = model_.parameters();
        return {parameters.begin(), parameters.end()};
    }
    [[nodiscard]] std::vector<ddp::Buffer> optimizer_arrays(std::size_t parameter) override {
        std::vector<ddp::Buffer> arrays{first_[parameter], second_[parameter]};
        arrays.resize(array_names(optimizer_).size());
        return arrays;
    }
    void forward(const Batch& batch) override { loss_ = model_.forward(batch); }
    [[nodiscard]] double loss() override { return loss_; }
    void backward(const Batch& batch, double divisor, const std::vector<ddp::Buffer>& gradients,
                  const std::function<void(std::size_t)>& ready) override {
        std::vector<std::span<float>> views;
        for (const ddp::Buffer& gradient : gradients) views.push_back(gradient.as<float>());
        model_.backward(batch, divisor, views, ready);
    }
    void update(const std::vector<ddp::Buffer>& gradients, ddp::Buffer, float rate, std::size_t step) override {
        const auto parameters = model_.parameters();
        for (std::size_t i = 0; i < parameters.size(); ++i)
            optimizer_step<float>(optimizer_, parameters[i], first_[i], second_[i], gradients[i].as<float>(), rate,
                                  step);
    }

private:
    Model<float> model_;
    Optimizer optimizer_;
    std::vector<std::vector<float>> first_, second_;  // the optimiser's arrays, by parameter
    double loss_ = 0;
};

}  // namespace

std::unique_ptr<Network> make_cpu_network(const Options& options) { return std::make_unique<CpuNetwork>(options); }

std::unique_ptr<Network> make_network(const Options& options, ddp::Context& context) {
    if (options.device == ddp::Device::Cpu) return make_cpu_network(options);
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
