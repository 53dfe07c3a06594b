// A communication hook of one's own: of each bucket it sends only the sixteenth with the largest gradients (top-k).
//
//     ddprun --nproc-per-node 4 comm_hook
//
// The rest is not lost, but added to the gradients of the next step (error feedback). The program trains with and
// without the hook, and prints the loss and the bytes that a rank contributed per step. For 16-bit gradients no hook
// has to be written: ddp::compress(ddp::DType::BF16) is one.

#include <ddp/ddp.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace {

constexpr int kWeights = 256, kBatch = 8, kSteps = 100;

/// Sends the largest values of each bucket of f64, and their indices.
class TopK final : public ddp::CommHook {
public:
    void prepare(ddp::ProcessGroup& group, const ddp::BucketPlan& plan) override {
        group_ = &group;
        buckets_.clear();
        for (const ddp::BucketPlan::Bucket& bucket : plan.buckets) {
            const std::size_t count = bucket.bytes / sizeof(double), sent = (count + 15) / 16, ranks = group.size();
            buckets_.push_back({.rest = std::vector<double>(count),
                                .largest = std::vector<double>(sent),
                                .indices = std::vector<std::uint32_t>(sent),
                                .all_largest = std::vector<double>(sent * ranks),
                                .all_indices = std::vector<std::uint32_t>(sent * ranks)});
        }
    }

    ddp::Work launch(const ddp::GradBucket& bucket) override {
        Bucket& own = buckets_[bucket.index];
        const std::span<double> gradients = bucket.buffer.as<double>();
        for (std::size_t i = 0; i < own.rest.size(); ++i) own.rest[i] += gradients[i];

        std::vector<std::uint32_t> order(own.rest.size());
        std::iota(order.begin(), order.end(), 0U);
        std::partial_sort_copy(order.begin(), order.end(), own.indices.begin(), own.indices.end(),
                               [&](auto a, auto b) { return std::abs(own.rest[a]) > std::abs(own.rest[b]); });
        for (std::size_t i = 0; i < own.indices.size(); ++i)
            own.largest[i] = std::exchange(own.rest[own.indices[i]], 0);

        own.exchange_of_indices = group_->all_gather(own.indices, own.all_indices);
        return group_->all_gather(own.largest, own.all_largest);
    }

    void complete(const ddp::GradBucket& bucket) override {
        Bucket& own = buckets_[bucket.index];
        own.exchange_of_indices.wait();  // it has ended before the operation that launch() returned
        const std::span<double> average = bucket.buffer.as<double>();
        std::ranges::fill(average, 0);
        for (std::size_t i = 0; i < own.all_indices.size(); ++i)
            average[own.all_indices[i]] += own.all_largest[i] / group_->size();
    }

    /// Returns what this rank contributes to a step.
    [[nodiscard]] std::size_t bytes() const {
        std::size_t bytes = 0;
        for (const Bucket& own : buckets_) bytes += own.largest.size() * (sizeof(double) + sizeof(std::uint32_t));
        return bytes;
    }

private:
    struct Bucket {
        std::vector<double> rest;  ///< gradients of this rank that have not been sent yet
        std::vector<double> largest;
        std::vector<std::uint32_t> indices;
        std::vector<double> all_largest;
        std::vector<std::uint32_t> all_indices;
        ddp::Work exchange_of_indices = {};
    };
    ddp::ProcessGroup* group_ = nullptr;
    std::vector<Bucket> buckets_;
};

/// Fits 256 weights to samples of w[i] = 1 / (1 + i). Returns the loss of the last step, averaged over the ranks.
double train(ddp::Context& context, std::shared_ptr<ddp::CommHook> hook) {
    std::vector<double> weights(kWeights), input(kWeights);
    ddp::GradientReducer reducer(context.world(), {{"weights", kWeights, ddp::DType::F64}}, {.hook = hook});
    double loss = 0;
    for (int step = 0; step < kSteps; ++step) {
        loss = 0;
        reducer.zero_grads();
        const auto gradients = reducer.grad<double>(0);
        reducer.begin_backward();
        for (int i = 0; i < kBatch; ++i) {
            const int sample = (step * kBatch + i) * context.world_size() + context.rank();
            double error = 0;
            for (int w = 0; w < kWeights; ++w) {
                input[w] = std::sin(1.7 * sample * (w % 31 + 1) + w * w);
                error += (weights[w] - 1.0 / (1 + w)) * input[w];
            }
            loss += error * error / kBatch;
            for (int w = 0; w < kWeights; ++w) gradients[w] += error * input[w] / kBatch;
        }
        reducer.mark_ready(0);
        reducer.finish_backward();
        for (int w = 0; w < kWeights; ++w) weights[w] -= 0.002 * gradients[w];
    }
    context.world().all_reduce(loss, ddp::ReduceOp::Avg).wait();
    return loss;
}

}  // namespace

int main() try {
    ddp::Context context = ddp::init_from_env({.backend = ddp::Backend::Native});
    const auto top_k = std::make_shared<TopK>();
    const double dense_loss = train(context, nullptr), top_k_loss = train(context, top_k);
    if (context.rank() != 0) return 0;
    std::printf("all gradients: loss %.6f, %zu bytes per step\n", dense_loss, kWeights * sizeof(double));
    std::printf("the largest:   loss %.6f, %zu bytes per step\n", top_k_loss, top_k->bytes());
} catch (const ddp::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
