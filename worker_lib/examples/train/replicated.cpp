// Data parallelism with ddp::GradientReducer: every rank holds the whole model, and gradients are averaged in buckets
// while backward still computes those of the layers below.

#include <memory>
#include <string>
#include <vector>

#include "network.hpp"
#include "parallel_model.hpp"
#include "support/user_error.hpp"

namespace train {
namespace {

// The model is small (16 MB), so its buckets are too: else all of it would be sent at the end.
constexpr ddp::BucketLimits kBuckets{.bucket_cap_bytes = 4 << 20, .first_bucket_cap_bytes = 1 << 19};

class ReplicatedModel final : public ParallelModel {
public:
    ReplicatedModel(const Options& options, ddp::Context& context)
        : options_(options),
          divisor_(average_share(options, context)),
          network_(make_network(options, context)),
          parameters_(network_->parameters()),
          reducer_(context.world(), specs(), {.limits = kBuckets}) {
        reducer_.sync_parameters(parameters_, 0, stream());  // every rank starts with rank 0's numbers
        for (std::size_t i = 0; i < parameters_.size(); ++i) gradients_.push_back(reducer_.grad(i));
    }

    [[nodiscard]] std::string description() const override {
        std::size_t count = 0;
        for (const ddp::Buffer& parameter : parameters_) count += parameter.count;
        return concat(count, " parameters in ", reducer_.plan().buckets.size(), " buckets");
    }
    [[nodiscard]] std::vector<ddp::NamedShard> state() override {
        const Layers<float> layers(options_.shape);
        std::vector<ddp::NamedShard> state;
        const auto add = [&](std::size_t i, const char* suffix, const ddp::Buffer& whole) {
            state.push_back({concat(Network::kNames[i], suffix), layers.dimensions(i), 0, whole});
        };
        for (std::size_t i = 0; i < parameters_.size(); ++i) add(i, "", parameters_[i]);
        const auto names = array_names(options_.optimizer);
        for (std::size_t k = 0; k < names.size(); ++k) {
            for (std::size_t i = 0; i < parameters_.size(); ++i) add(i, names[k], network_->optimizer_arrays(i)[k]);
        }
        return state;
    }
    [[nodiscard]] ddp::Stream stream() const override { return network_->stream(); }

    [[nodiscard]] double compute(const Batch& batch, Progress& progress) override {
        network_->forward(batch);  // on a GPU this, and all that follows, is queued on the stream
        reducer_.begin_backward(true, stream());
        network_->backward(batch, divisor_, gradients_, [&](std::size_t i) {
            progress.computed();
            if (!options_.no_overlap) reducer_.mark_ready(i, stream());  // a bucket is sent when all of it is ready
        });
        for (std::size_t i = gradients_.size(); options_.no_overlap && i-- > 0;) reducer_.mark_ready(i, stream());
        return network_->loss();
    }
    void finish_backward() override {
        reducer_.finish_backward(stream());  // all ranks' gradients are the same average now, bit for bit
    }
    void update(float rate, std::size_t step) override {
        step_ = step;
        network_->update(gradients_, reducer_.step_ok(), rate, step);
    }
    /// A GPU does its steps later than this thread enqueues them. Only those that it has done with right averages may
    /// be saved: if a rank is lost, the job resumes before them.
    void wait() override {
        network_->wait();
        if (const ddp::ReducerStats stats = reducer_.stats(); stats.confirmed != stats.steps)
            throw ddp::Error(ddp::ErrorCode::Aborted, concat("the averages of step ", step_, " are incomplete"));
    }

private:
    [[nodiscard]] std::vector<ddp::ParamSpec> specs() const {
        std::vector<ddp::ParamSpec> specs;
        for (std::size_t i = 0; i < parameters_.size(); ++i)
            specs.push_back({Network::kNames[i], parameters_[i].count});
        return specs;
    }

    const Options& options_;
    double divisor_;
    std::unique_ptr<Network> network_;
    std::vector<ddp::Buffer> parameters_;
    ddp::GradientReducer reducer_;
    std::vector<ddp::Buffer> gradients_;  // views into the reducer's buckets
    std::size_t step_ = 0;                // the newest one
};

}  // namespace

std::unique_ptr<ParallelModel> make_replicated_model(const Options& options, ddp::Context& context) {
    return std::make_unique<ReplicatedModel>(options, context);
}

}  // namespace train
