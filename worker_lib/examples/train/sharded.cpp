// Sharding with ddp::ShardedParameters: each rank keeps a part of every layer, which is whole only while it computes.
// The optimiser updates the part alone, so its arrays have the part's size.

#include <memory>
#include <string>
#include <vector>

#include "parallel_model.hpp"
#include "support/user_error.hpp"

namespace train {
namespace {

using Sharded = ddp::ShardedParameters;

class ShardedModel final : public ParallelModel {
public:
    ShardedModel(const Options& options, ddp::Context& context)
        : optimizer_(options.optimizer),
          divisor_(average_share(options, context)),
          layers_(options.shape),
          parameters_(context.world(), units(), {.sharding = *options.sharding, .param_dtype = options.param_dtype}),
          first_(parameters_.size()),
          second_(optimizer_ == Optimizer::kAdamW ? parameters_.size() : 0) {
        // No rank ever holds the whole model.
        parameters_.fill([&](std::size_t i, std::size_t begin, ddp::Buffer part) {
            layers_.initialise(i, begin, options.seed, part.as<float>());
        });
    }

    [[nodiscard]] std::string description() const override {
        std::size_t count = 0;
        for (std::size_t i = 0; i < kNames.size(); ++i) count += layers_.count(i);
        return concat(count, " parameters in ", kLayers, " units, ", parameters_.size(), " of them on this rank");
    }
    [[nodiscard]] std::string memory_plan() const {
        const std::size_t arrays = array_names(optimizer_).size();
        return concat(to_string(parameters_.plan()), "the optimiser has ", arrays,
                      arrays == 1 ? " array\n" : " arrays\n");
    }
    [[nodiscard]] std::vector<ddp::NamedShard> state() override {
        const auto names = array_names(optimizer_);
        std::vector<ddp::NamedShard> state = ddp::concat(parameters_.state(), parameters_.state(names[0], first_));
        return names.size() == 1 ? state : ddp::concat(std::move(state), parameters_.state(names[1], second_));
    }

    [[nodiscard]] double compute(const Batch& batch, Progress& progress) override {
        layers_.begin(batch);
        for (std::size_t layer = 0; layer < kLayers; ++layer) {
            const auto unit = parameters_.forward(layer);  // whole inside these braces
            layers_.forward(layer, values(unit, layer));
        }
        const double loss = layers_.loss();
        layers_.begin_backward(divisor_);
        parameters_.begin_backward();
        for (std::size_t layer = kLayers; layer-- > 0;) {
            const auto unit = parameters_.backward(layer);  // its gradients are reduced from the brace on
            std::vector<std::span<float>> gradients;
            for (std::size_t i = 0; i < size_of(layer); ++i) gradients.push_back(unit.grad<float>(i));
            layers_.backward(layer, values(unit, layer), gradients, [&](std::size_t) { progress.computed(); });
        }
        return loss;
    }
    void finish_backward() override { parameters_.finish_backward(); }
    void update(float rate, std::size_t step) override {
        std::size_t begin = 0;
        for (const ddp::Shard& shard : parameters_.shards()) {
            const std::size_t count = shard.values.count;
            const auto part = [&](std::vector<float>& array) {
                return array.empty() ? std::span<float>() : std::span(array).subspan(begin, count);
            };
            optimizer_step<float>(optimizer_, shard.values.as<float>(), part(first_), part(second_),
                                  shard.grad.as<float>(), rate, step);
            begin += count;
        }
    }

private:
    static constexpr std::size_t kLayers = Layers<float>::kCount;
    static constexpr auto kNames = Layers<float>::kNames;
    static std::size_t size_of(std::size_t layer) {
        return Layers<float>::first_of(layer + 1) - Layers<float>::first_of(layer);
    }

    /// Returns a unit for each layer.
    [[nodiscard]] std::vector<std::vector<ddp::ParamSpec>> units() const {
        std::vector<std::vector<ddp::ParamSpec>> units(kLayers);
        for (std::size_t layer = 0, i = 0; layer < kLayers; ++layer) {
            for (; i < Layers<float>::first_of(layer + 1); ++i)
                units[layer].push_back({.name = kNames[i], .count = layers_.count(i), .shape = layers_.dimensions(i)});
        }
        return units;
    }

    /// Returns the parameters of a unit. It computes in f32: values of other types are converted, one unit at a time.
    [[nodiscard]] std::vector<std::span<const float>> values(const Sharded::Scope& unit, std::size_t layer) {
        std::vector<std::span<const float>> found;
        for (std::size_t i = 0; i < size_of(layer); ++i) {
            const ddp::ConstBuffer parameter = unit.param(i);
            const auto convert = [&]<typename T>(std::span<const T> narrow) {
                wide_[i].assign(narrow.begin(), narrow.end());
                found.emplace_back(wide_[i]);
            };
            if (parameter.dtype == ddp::DType::BF16)
                convert(parameter.as<ddp::BFloat16>());
            else if (parameter.dtype == ddp::DType::F16)
                convert(parameter.as<ddp::Float16>());
            else
                found.push_back(parameter.as<float>());
        }
        return found;
    }

    const Optimizer optimizer_;
    const double divisor_;
    Layers<float> layers_;
    Sharded parameters_;
    std::vector<float> first_, second_;       // the optimiser's arrays, of this rank's part
    std::array<std::vector<float>, 3> wide_;  // parameters of one unit, converted
};

}  // namespace

std::string memory_plan(const Options& options, ddp::Context& context) {
    return ShardedModel(options, context).memory_plan();
}

std::unique_ptr<ParallelModel> make_sharded_model(const Options& options, ddp::Context& context) {
    return std::make_unique<ShardedModel>(options, context);
}

}  // namespace train
