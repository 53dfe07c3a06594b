#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "worker_lib/examples/train/parallel_model.hpp"
#include "worker_lib/examples/train/support/data.hpp"
#include "worker_lib/examples/train/support/progress.hpp"
#include "worker_lib/examples/train/support/user_error.hpp"
#include "worker_lib/examples/train/trainer.hpp"

using Catch::Contains;
using ddp::Context;
using ddp::testing::LocalWorld;
using ddp::testing::run_ranks;
using train::Text;
using train::UserError;

namespace {

/// Bytes whose value tells where they are, as far as a byte can.
Text counting_text(std::size_t bytes) {
    Text text;
    for (std::size_t i = 0; i < bytes; ++i) text.bytes.push_back(static_cast<std::uint8_t>(i));
    return text;
}

const train::Options kOptions{.global_batch = 12, .seed = 3, .shape = {.context = 4}};

/// The targets of all ranks in a step, sorted. Checks that the ranks' shares differ by one at most.
std::vector<std::uint8_t> targets_of_step(const Text& text, int ranks, std::size_t step) {
    std::vector<std::uint8_t> all;
    std::size_t smallest = all.max_size(), largest = 0;
    for (int rank = 0; rank < ranks; ++rank) {
        train::Batches batches(text, kOptions, rank, ranks);
        const auto& targets = batches.of_step(step).targets;
        all.insert(all.end(), targets.begin(), targets.end());
        smallest = std::min(smallest, targets.size());
        largest = std::max(largest, targets.size());
    }
    CHECK(largest <= smallest + 1);
    std::sort(all.begin(), all.end());
    return all;
}

/// Returns, by rank, "" for no error; else the text, or "quiet" if another rank reports it.
template <typename Body>
std::vector<std::string> user_errors(const LocalWorld& world, Body body) {
    return run_ranks(world, [&](Context& context) -> std::string {
        try {
            body(context);
            return "";
        } catch (const UserError& error) {
            return *error.what() != '\0' ? error.what() : "quiet";
        }
    });
}

/// A model that trains in no time, on a text of its own.
train::Options tiny_run(const TemporaryDirectory& directory) {
    write_file(directory.path() / "text", std::string(300, 'a') + "the quick brown fox" + std::string(300, 'b'));
    train::Options options;
    options.data = {directory.path() / "text"};
    options.steps = 12;
    options.global_batch = 16;
    options.shape = {.context = 4, .embedding = 3, .hidden1 = 20, .hidden2 = 10};
    options.rate = 0.1f;
    options.progress = false;
    return options;
}

std::vector<double> losses(const std::filesystem::path& log) {
    std::ifstream file(log);
    std::vector<double> result;
    std::size_t step = 0;
    for (double loss = 0; file >> step >> loss;) result.push_back(loss);
    return result;
}

std::vector<double> train_on(int ranks, train::Options options, const std::filesystem::path& log) {
    options.loss_log = log;
    run_ranks(LocalWorld{.ranks_per_node = {ranks}},
              [&](Context& context) { return train::train(options, context).loss_last; });
    return losses(log);
}

}  // namespace

TEST_CASE("a step's samples are the same for every number of ranks", "[train]") {
    const Text text = counting_text(100);  // 96 windows: 8 steps in an epoch
    for (const std::size_t step : {1, 8, 9, 20}) {
        CAPTURE(step);
        const auto one = targets_of_step(text, 1, step);
        CHECK(one.size() == 12);
        for (const int ranks : {3, 4, 5, 7, 13}) CHECK(targets_of_step(text, ranks, step) == one);
    }
    CHECK(targets_of_step(text, 1, 1) != targets_of_step(text, 1, 9));  // a new order in each epoch
}

TEST_CASE("an epoch in which the number of ranks changes shows every window once", "[train]") {
    const Text text = counting_text(100);
    std::vector<std::uint8_t> seen;
    for (std::size_t step = 1; step <= 8; ++step) {
        const auto targets = targets_of_step(text, step <= 3 ? 4 : step <= 5 ? 3 : 5, step);
        seen.insert(seen.end(), targets.begin(), targets.end());
    }
    std::ranges::sort(seen);
    std::vector<std::uint8_t> all(96);
    std::iota(all.begin(), all.end(), std::uint8_t{4});  // the first four bytes are no targets
    CHECK(seen == all);
}

TEST_CASE("an epoch shows every window once, with its own bytes", "[train]") {
    const Text text = counting_text(100);
    train::Batches batches(text, kOptions, 0, 1);
    std::vector<int> seen(100);
    for (std::size_t step = 1; step <= 8; ++step) {
        const train::Batch& batch = batches.of_step(step);
        for (std::size_t i = 0; i < batch.size(); ++i) {
            ++seen[batch.targets[i]];
            for (std::size_t j = 0; j < 4; ++j) CHECK(batch.contexts[i * 4 + j] + 4 - j == batch.targets[i]);
        }
    }
    CHECK(std::count(seen.begin(), seen.begin() + 4, 0) == 4);
    CHECK(std::count(seen.begin() + 4, seen.end(), 1) == 96);
}

TEST_CASE("too little text is reported by rank 0", "[train]") {
    const Text text = counting_text(100);
    train::Options options = kOptions;
    options.global_batch = 96;
    CHECK_NOTHROW(train::Batches(text, options, 0, 2));
    options.global_batch = 97;
    CHECK_THROWS_WITH(train::Batches(text, options, 0, 2), Contains("100 bytes") && Contains("needs 101"));
    CHECK_THROWS_WITH(train::Batches(text, options, 1, 2), "");
}

TEST_CASE("a file that one rank cannot read stops all, and that rank reports it", "[train]") {
    const TemporaryDirectory directory;
    write_file(directory.path() / "text", "abc");
    const auto errors = user_errors({.ranks_per_node = {3}}, [&](Context& context) {
        const Text text =
            train::read_same_text({directory.path() / (context.rank() == 1 ? "missing" : "text")}, context);
    });
    CHECK(errors[0] == "quiet");
    CHECK_THAT(errors[1], Contains("missing") && Contains("No such file"));
    CHECK(errors[2] == "quiet");
}

TEST_CASE("a node with other data is named", "[train]") {
    const TemporaryDirectory directory;
    write_file(directory.path() / "text", "abc");
    const auto [other, difference] = GENERATE(values<std::pair<std::string, std::string>>(
        {{"abd", "(3 bytes) than rank 0 (3)"}, {"abcd", "(4 bytes) than rank 0 (3)"}}));
    write_file(directory.path() / "other", other);
    const auto errors = user_errors({.ranks_per_node = {2, 1}}, [&](Context& context) {
        const Text text = train::read_same_text({directory.path() / (context.rank() == 2 ? "other" : "text")}, context);
    });
    CHECK(errors[0] == "quiet");
    CHECK_THAT(errors[2], Contains("rank 2 on node 1") && Contains(difference));
}

TEST_CASE("the loss curve is the same on 1, 3, 4 and 17 ranks, and falls", "[train]") {
    const TemporaryDirectory directory;
    const auto options = tiny_run(directory);
    const auto one = train_on(1, options, directory.path() / "one");
    const auto three = train_on(3, options, directory.path() / "three");
    const auto four = train_on(4, options, directory.path() / "four");
    const auto many = train_on(17, options, directory.path() / "many");  // one of them without a sample
    REQUIRE(one.size() == 12);
    for (const auto& curve : {three, four, many}) {
        REQUIRE(curve.size() == 12);
        for (std::size_t i = 0; i < one.size(); ++i) CHECK(curve[i] == Approx(one[i]).epsilon(1e-4));
    }
    CHECK(one.back() < 0.8 * one.front());
    CHECK(train_on(4, options, directory.path() / "again") == four);
}

TEST_CASE("without overlap the curve is the same to the bit, and every step waits", "[train]") {
    const TemporaryDirectory directory;
    auto options = tiny_run(directory);
    const auto overlapped = train_on(2, options, directory.path() / "overlapped");
    options.no_overlap = true;
    CHECK(train_on(2, options, directory.path() / "after") == overlapped);
    const auto exposed = run_ranks(LocalWorld{.ranks_per_node = {2}},
                                   [&](Context& context) { return train::train(options, context).exposed_ms; });
    CHECK(exposed[0] > 0);
    CHECK(exposed[1] == exposed[0]);
}

TEST_CASE("every strategy has the loss curve of whole models, bit for bit", "[train]") {
    const TemporaryDirectory directory;
    auto options = tiny_run(directory);
    options.optimizer = GENERATE(train::Optimizer::kSgd, train::Optimizer::kAdamW);
    const int ranks = GENERATE(1, 3, 17);  // of 17 ranks one has no sample, and some have an empty part
    CAPTURE(static_cast<int>(options.optimizer), ranks);
    const auto whole = train_on(ranks, options, directory.path() / "whole");
    REQUIRE(whole.size() == 12);
    for (const ddp::Sharding sharding :
         {ddp::Sharding::Full, ddp::Sharding::GradOp, ddp::Sharding::Optimizer, ddp::Sharding::None}) {
        CAPTURE(static_cast<int>(sharding));
        options.sharding = sharding;
        CHECK(train_on(ranks, options, directory.path() / "sharded") == whole);
    }
}

TEST_CASE("parameters that are gathered as bf16 or f16 train nearly as those in f32", "[train]") {
    const TemporaryDirectory directory;
    auto options = tiny_run(directory);
    options.sharding = GENERATE(ddp::Sharding::Full, ddp::Sharding::None);
    const auto in_f32 = train_on(2, options, directory.path() / "f32");
    for (const auto& [type, margin] : {std::pair{ddp::DType::BF16, 2e-2}, std::pair{ddp::DType::F16, 2e-3}}) {
        CAPTURE(to_string(type));
        options.param_dtype = type;
        const auto narrow = train_on(2, options, directory.path() / "narrow");
        CHECK(narrow != in_f32);
        for (std::size_t i = 0; i < in_f32.size(); ++i) CHECK(narrow[i] == Approx(in_f32[i]).epsilon(margin));
    }
}

TEST_CASE("the plan has a unit for each layer, and the memory of a rank", "[train]") {
    const TemporaryDirectory directory;
    auto options = tiny_run(directory);
    options.sharding = ddp::Sharding::Full;
    options.optimizer = train::Optimizer::kAdamW;
    const auto plans =
        run_ranks({.ranks_per_node = {2}}, [&](Context& context) { return train::memory_plan(options, context); });
    CHECK_THAT(plans[0], Contains("3 units, divided among 2 ranks (Sharding::Full)") && Contains("  layer2.weight  ") &&
                             Contains("together ") && Contains("the optimiser has 2 arrays"));
    CHECK(plans[1] == plans[0]);
}

TEST_CASE("what is exposed is the wait of the last rank of each step", "[train]") {
    using std::chrono::milliseconds;
    const auto exposed = run_ranks(LocalWorld{.ranks_per_node = {2}}, [](Context& context) {
        train::Progress progress(false, 3, 1);
        const double none = progress.exposed_ms(context);
        const bool first = context.rank() == 0;
        train::Progress::Clock::time_point now;
        for (const int wait : first ? std::vector{10, 30, 2} : std::vector{7, 5, 100}) {
            progress.computed(now += milliseconds(1));  // the first of two gradients
            progress.computed(now += milliseconds(1));
            progress.averaged(now += milliseconds(wait));
        }
        return std::pair{none, progress.exposed_ms(context)};
    });
    CHECK(exposed == std::vector{std::pair{0.0, 5.0}, std::pair{0.0, 5.0}});  // of 7, 5 and 2
}

TEST_CASE("without --lr the rate is smaller for small batches only", "[train]") {
    const TemporaryDirectory directory;
    auto options = tiny_run(directory);
    options.rate = 0;
    options.steps = 1;
    const auto rate = [&](std::size_t global_batch) {
        options.global_batch = global_batch;
        return run_ranks({}, [&](Context& context) { return train::train(options, context).rate; }).front();
    };
    CHECK(rate(512) == 0.1f);
    CHECK(rate(600) == 0.1f);
    CHECK(rate(32) == Approx(0.00625));
}

TEST_CASE("a run that stops and resumes continues the same curve to the bit", "[train]") {
    const TemporaryDirectory directory;
    auto options = tiny_run(directory);
    const auto undisturbed = train_on(2, options, directory.path() / "undisturbed");

    options.checkpoint_dir = directory.path() / "checkpoints";
    options.checkpoint_every = 5;
    options.steps = 7;  // saves after 5 and 7
    train_on(2, options, directory.path() / "log");
    std::filesystem::remove(directory.path() / "checkpoints" / "step-7.safetensors");  // as if killed after step 7
    options.steps = 12;
    CHECK(train_on(2, options, directory.path() / "log") == undisturbed);
}

TEST_CASE("a run resumes with any strategy and any number of ranks, and continues the same curve", "[train]") {
    const TemporaryDirectory directory;
    auto options = tiny_run(directory);
    options.optimizer = train::Optimizer::kAdamW;
    const auto undisturbed = train_on(2, options, directory.path() / "undisturbed");

    using Choice = std::optional<ddp::Sharding>;
    const auto [before, after] = GENERATE(table<Choice, Choice>({{ddp::Sharding::Full, ddp::Sharding::Full},
                                                                 {ddp::Sharding::Full, ddp::Sharding::None},
                                                                 {ddp::Sharding::GradOp, Choice()},
                                                                 {Choice(), ddp::Sharding::Optimizer}}));
    const int ranks = GENERATE(1, 2, 3);
    options.checkpoint_dir = directory.path() / "checkpoints";
    options.checkpoint_every = 5;
    options.steps = 7;
    options.sharding = before;
    train_on(2, options, directory.path() / "log");
    options.steps = 12;
    options.sharding = after;
    const auto resumed = train_on(ranks, options, directory.path() / "log");
    if (ranks == 2) CHECK(resumed == undisturbed);
    REQUIRE(resumed.size() == undisturbed.size());
    for (std::size_t i = 0; i < resumed.size(); ++i) CHECK(resumed[i] == Approx(undisturbed[i]).epsilon(1e-5));
}

TEST_CASE("a checkpoint of a run with another seed or model is not continued", "[train]") {
    const TemporaryDirectory directory;
    auto options = tiny_run(directory);
    options.steps = 1;
    options.checkpoint_dir = directory.path() / "checkpoints";
    options.checkpoint_every = 1;
    train_on(1, options, directory.path() / "log");
    const auto errors_of_resuming = [&] {
        return user_errors({.ranks_per_node = {2}}, [&](Context& context) { (void)train::train(options, context); });
    };
    options.shape.hidden1 = 21;
    const auto of_model = errors_of_resuming();
    CHECK_THAT(of_model[0], Contains("step-1.safetensors") && Contains("'layer1.weight' f32[12,20]"));
    CHECK(of_model[1] == "quiet");
    options.shape.hidden1 = 20;
    options.seed = 99;
    const auto of_seed = errors_of_resuming();
    CHECK_THAT(of_seed[0], Contains("--seed 1") && Contains("another --checkpoint-dir"));
    CHECK(of_seed[1] == "quiet");
}

TEST_CASE("a run that diverges stops instead of saving its state", "[train]") {
    const TemporaryDirectory directory;
    auto options = tiny_run(directory);
    options.rate = 1e30f;
    const auto errors =
        user_errors({.ranks_per_node = {2}}, [&](Context& context) { (void)train::train(options, context); });
    CHECK_THAT(errors[0], Contains("--lr"));
    CHECK(errors[1] == "quiet");
}
