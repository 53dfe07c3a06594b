#include "train/trainer.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "ddp/ddp.hpp"
#include "train/batches.hpp"
#include "train/loss_log.hpp"
#include "train/model.hpp"
#include "train/process.hpp"
#include "train/progress.hpp"
#include "train/recovery.hpp"
#include "train/sgd.hpp"
#include "train/text.hpp"
#include "train/user_error.hpp"
#include "train/waiting.hpp"

namespace train {
namespace {

using Network = Model<float>;
using Tensors = std::vector<std::span<float>>;  // one per parameter of the network

// The model is small (16 MB), so its buckets are too: else all of it would be sent at the end.
constexpr ddp::BucketLimits kBuckets{.bucket_cap_bytes = 4 << 20, .first_bucket_cap_bytes = 1 << 19};

Tensors parameters_of(Network& network) {
    Tensors tensors;
    for (std::size_t i = 0; i < Network::kParameters; ++i) tensors.push_back(network.parameter(i));
    return tensors;
}

/// Describes the parameters to the reducer: names for its errors, sizes for its buckets.
std::vector<ddp::ParamSpec> specs_of(const Tensors& parameters) {
    std::vector<ddp::ParamSpec> specs;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        specs.push_back({std::string(Network::kNames[i]), parameters[i].size(), ddp::DType::F32});
    }
    return specs;
}

/// Returns the memory of the gradients: views into the reducer's buckets, which the ranks of a node share.
Tensors gradients_of(ddp::GradientReducer& reducer) {
    Tensors tensors;
    for (std::size_t i = 0; i < Network::kParameters; ++i) {
        const ddp::Buffer view = reducer.grad(i);
        tensors.emplace_back(static_cast<float*>(view.data), view.count);
    }
    return tensors;
}

std::vector<ddp::Buffer> buffers(const Tensors& tensors) {
    std::vector<ddp::Buffer> result;
    for (const std::span<float> tensor : tensors) result.push_back(ddp::Buffer(tensor));
    return result;
}

std::vector<ddp::NamedBuffer> state_of(const Tensors& parameters, Sgd& sgd) {
    std::vector<ddp::NamedBuffer> state;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        state.push_back({std::string(Network::kNames[i]), ddp::Buffer(parameters[i])});
        state.push_back({fmt::format("{}.velocity", Network::kNames[i]), ddp::Buffer(sgd.velocity(i))});
    }
    return state;
}

/// Opens the loss log on rank 0. A failure ends all ranks.
std::optional<LossLog> open_loss_log(const Options& options, ddp::Context& context, std::size_t resumed_step) {
    std::optional<LossLog> log;
    std::string problem;
    try {
        if (context.rank() == 0 && !options.loss_log.empty()) log.emplace(options.loss_log, resumed_step);
    } catch (const UserError& error) {
        problem = error.what();
    }
    leave_together_if(context, problem);
    return log;
}

/// Throws UserError if the loss is not finite. All ranks have the same loss; rank 0 reports it.
void require_finite(double loss, std::size_t step, int rank) {
    if (std::isfinite(loss)) return;
    throw UserError(rank == 0 ? fmt::format("the loss is not finite ({}) at step {}. Pass a smaller --lr", loss, step)
                              : "");
}

std::string counted(int count, std::string_view what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string json_number(double value) { return std::isfinite(value) ? fmt::format("{}", value) : "null"; }

}  // namespace

// main() has called ddp::init_from_env(), so the ranks are connected.
Summary train(const Options& options, ddp::Context& context) {
    // 1. Compute with this rank's share of the machine.
    const int threads = options.threads > 0 ? options.threads : default_threads(context);
    use_threads(threads);

    // 2. Every rank reads the same data and takes its share of every batch.
    const Text text = read_same_text(options.data, context);
    Batches batches(text, options.shape.context, options.global_batch, options.seed, context);

    // 3. Every rank holds the whole model and starts with rank 0's numbers.
    Network network(options.shape, options.seed);
    const Tensors parameters = parameters_of(network);
    ddp::GradientReducer reducer(context.world(), specs_of(parameters), {.limits = kBuckets});
    reducer.sync_parameters(buffers(parameters));
    const Tensors gradients = gradients_of(reducer);
    Sgd sgd(parameters);

    // 4. After a restart, continue from the newest checkpoint.
    Run run{.seed = options.seed, .global_batch = options.global_batch, .text = text.fingerprint};
    Recovery recovery(options, context, run, state_of(parameters, sgd));
    const std::size_t resumed_step = recovery.resume();

    Progress progress(options.progress, context.rank());
    progress.note(fmt::format("train: {:.1f} M parameters in {} buckets; {} with {} each; {} KB of text from {}",
                              static_cast<double>(network.parameter_count()) / 1e6, reducer.plan().buckets.size(),
                              counted(context.world_size(), "rank"), counted(threads, "thread"),
                              text.bytes.size() / 1000, counted(static_cast<int>(text.files), "file")));
    if (resumed_step > 0)
        progress.note(fmt::format("train: resumed after step {}", resumed_step));
    else if (context.restart_count() > 0 && options.checkpoint_dir.empty())
        progress.note("train: starts again with step 1; with --checkpoint-dir DIR it would resume");
    std::optional<LossLog> loss_log = open_loss_log(options, context, resumed_step);

    // 5. Train. Gradients are sent bucket by bucket while backward still computes the layers below.
    double& loss = *static_cast<double*>(context.world().arena().allocate(sizeof(double)));  // reduced without a copy
    const auto began = std::chrono::steady_clock::now();
    std::chrono::duration<double> elapsed{};
    double samples = 0;
    Waiting waiting;
    std::size_t last_step = resumed_step;
    bool preempted = false;
    for (std::size_t step = resumed_step + 1; step <= options.steps; ++step) {
        ddp::set_step(step);  // so that ddprun can report the goodput
        const Batch& batch = batches.of_step(step);
        loss = network.forward(batch);
        ddp::Work loss_sum = context.world().all_reduce(loss, ddp::ReduceOp::Sum);  // runs meanwhile
        reducer.begin_backward();
        network.backward(batch, gradients, [&](std::size_t i) {
            waiting.computed();
            if (options.overlap) reducer.mark_ready(i);
        });
        for (std::size_t i = Network::kParameters; !options.overlap && i-- > 0;) reducer.mark_ready(i);
        reducer.finish_backward();  // all ranks' gradients are the same average now, bit for bit
        waiting.averaged();
        sgd.step(gradients, warmed_up(options.rate, step));

        loss_sum.wait();
        run.loss_last = loss / static_cast<double>(options.global_batch);
        if (step == 1) run.loss_first = run.loss_last;
        require_finite(run.loss_last, step, context.rank());
        if (loss_log) loss_log->write(step, run.loss_last);
        recovery.save_if_due(step);

        samples += static_cast<double>(options.global_batch);
        elapsed = std::chrono::steady_clock::now() - began;
        progress.step({.step = step,
                       .last_step = options.steps,
                       .steps_done = step - resumed_step,
                       .loss = run.loss_last,
                       .samples = samples,
                       .elapsed = elapsed,
                       .waiting = waiting.total()});
        last_step = step;
        // 6. Before a preemption all ranks stop here in the same step, and save it.
        preempted = step < options.steps && ddp::agree_to_stop();
        if (!preempted) continue;
        progress.note(
            recovery.save(step)
                ? fmt::format("train: preempted: saved step {}", step)
                : fmt::format("train: preempted at step {}; with --checkpoint-dir DIR it would resume", step));
        break;
    }
    return {.world_size = context.world_size(),
            .steps = last_step,
            .loss_first = run.loss_first,
            .loss_last = run.loss_last,
            .samples_per_s = samples > 0 ? samples / elapsed.count() : 0,
            .exposed_ms = waiting.exposed_ms(context),
            .restarts = context.restart_count(),
            .preempted = preempted};
}

std::string to_json(const Summary& summary) {
    return fmt::format(
        R"({{"world_size":{},"steps":{},"loss_first":{},"loss_last":{},"samples_per_s":{},"exposed_ms":{},"restarts":{}}})",
        summary.world_size, summary.steps, json_number(summary.loss_first), json_number(summary.loss_last),
        json_number(std::round(summary.samples_per_s * 10) / 10),
        json_number(std::round(summary.exposed_ms * 1e3) / 1e3), summary.restarts);
}

}  // namespace train
