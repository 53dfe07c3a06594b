// PowerSgd trains the model of `train` as plain averages do.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "ddp/ddp.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "worker_lib/examples/train/model.hpp"
#include "worker_lib/examples/train/support/data.hpp"
#include "worker_lib/examples/train/support/optimizer.hpp"

using ddp::testing::run_ranks;
using train::Model;

/// Is null if the model does not use OpenBLAS.
extern "C" [[gnu::weak]] void openblas_set_num_threads(int count);

namespace {

constexpr std::size_t kSteps = 300, kStart = 20, kMeasured = 20;

struct Result {
    double loss = 0;            ///< mean of the last kMeasured steps
    double bytes_per_step = 0;  ///< that a rank gives to collectives, once gradients are compressed
};

/// Returns the parameters in the order of Model::kNames. A weight has a row for each input of its layer.
std::vector<ddp::ParamSpec> specs_of(Model<float>& model, const train::ModelShape& shape) {
    const std::vector<std::size_t> rows{256, shape.context * shape.embedding, 1, shape.hidden1, 1, shape.hidden2, 1};
    std::vector<ddp::ParamSpec> specs;
    for (const auto parameter : model.parameters()) {
        const std::size_t i = specs.size();
        specs.push_back({.name = Model<float>::kNames[i],
                         .count = parameter.size(),
                         .shape = {rows[i], parameter.size() / rows[i]}});
    }
    return specs;
}

/// Trains as `train` does.
/// rank   of the factors; 0: without PowerSgd
Result train_with(int rank, const train::Text& text, const train::Options& options) {
    return run_ranks({.ranks_per_node = {2}}, [&](ddp::Context& context) {
        Model<float> model(options.shape, options.seed);
        train::Batches batches(text, options, context.rank(), context.world_size());
        const auto specs = specs_of(model, options.shape);
        const auto hook =
            rank > 0 ? std::make_shared<ddp::PowerSgd>(specs, ddp::PowerSgdOptions{.rank = rank, .start_step = kStart})
                     : nullptr;
        ddp::GradientReducer reducer(context.world(), specs, {.hook = hook});
        std::vector<std::span<float>> gradients;
        std::vector<std::vector<float>> velocities;
        for (std::size_t i = 0; i < specs.size(); ++i) {
            gradients.push_back(reducer.grad<float>(i));
            velocities.emplace_back(specs[i].count);
        }
        double loss = 0;
        double bytes_before = 0;
        for (std::size_t step = 1; step <= kSteps; ++step) {
            const train::Batch& batch = batches.of_step(step);
            const double of_batch = model.forward(batch);
            if (step > kSteps - kMeasured) loss += of_batch / kMeasured;
            reducer.begin_backward();
            model.backward(batch, static_cast<double>(options.global_batch) / context.world_size(), gradients,
                           [&](std::size_t i) { reducer.mark_ready(i); });
            reducer.finish_backward();
            const float rate = options.rate * std::min(static_cast<float>(step), 20.0f) / 20;
            const auto parameters = model.parameters();
            for (std::size_t i = 0; i < specs.size(); ++i)
                train::sgd_step<float>(parameters[i], velocities[i], gradients[i], rate);
            if (hook && step == kStart) bytes_before = static_cast<double>(hook->bytes_sent());
        }
        context.world().all_reduce(loss, ddp::ReduceOp::Sum).wait();
        const double sent = hook ? static_cast<double>(hook->bytes_sent()) - bytes_before : 0;
        return Result{loss / static_cast<double>(options.global_batch), sent / (kSteps - kStart)};
    })[0];
}

/// Returns words in an order without a period, so that there is something to learn.
train::Text some_text() {
    const std::vector<std::string> words{"the ", "quick ", "brown ", "fox ", "jumps ", "over ", "a ", "lazy ", "dog. "};
    train::Text text;
    for (std::size_t i = 0, state = 1; i < 4000; ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const std::string& word = words[(state >> 33) % words.size()];
        text.bytes.insert(text.bytes.end(), word.begin(), word.end());
    }
    return text;
}

}  // namespace

TEST_CASE("P3: with PowerSgd of rank 4 train's model learns as well, from a twentieth of the bytes", "[train]") {
    if (openblas_set_num_threads != nullptr) openblas_set_num_threads(1);  // each rank is a thread itself
    const train::Text text = some_text();
    const train::Options options{.global_batch = 64,
                                 .rate = 0.0125f,  // the default of `train` for this batch
                                 .shape = {.context = 8, .embedding = 32, .hidden1 = 320, .hidden2 = 224}};
    const Result plain = train_with(0, text, options);
    const Result compressed = train_with(4, text, options);
    std::size_t whole = 0;
    Model<float> model(options.shape, options.seed);
    for (const auto parameter : model.parameters()) whole += parameter.size_bytes();
    CAPTURE(plain.loss, compressed.loss, compressed.bytes_per_step, whole);
    CHECK(compressed.loss <= 1.02 * plain.loss);
    CHECK(compressed.bytes_per_step <= static_cast<double>(whole) / 20);
    CHECK(plain.loss < 1);  // it begins with 5.5
}
