#include "trainer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "network.hpp"
#include "support/data.hpp"
#include "support/loss_log.hpp"
#include "support/progress.hpp"
#include "support/recovery.hpp"
#include "support/user_error.hpp"

namespace train {
namespace {

// The model is small (16 MB), so its buckets are too: else all of it would be sent at the end.
constexpr ddp::BucketLimits kBuckets{.bucket_cap_bytes = 4 << 20, .first_bucket_cap_bytes = 1 << 19};

/// Returns the learning rate without --lr. Small batches have gradients that vary more, and diverge with the rate of
/// large ones.
float default_rate(std::size_t global_batch) { return 0.1f * std::min(static_cast<float>(global_batch) / 512, 1.0f); }

}  // namespace

// main() has called ddp::init_from_env(), so the ranks are connected.
Summary train(const Options& options, ddp::Context& context) {
    // 1. Every rank reads the same data and takes its share of every batch.
    const Text text = read_same_text(options.data, context);
    Batches batches(text, options, context.rank(), context.world_size());
    // A rank divides by the average share, not by its own, so that the average of all ranks is the mean of the batch.
    const double average_share = static_cast<double>(options.global_batch) / context.world_size();

    // 2. Every rank holds the whole model, on its CPU or GPU, and starts with rank 0's numbers.
    const std::unique_ptr<Network> network = make_network(options, context);
    const ddp::Stream stream = network->stream();
    const std::vector<ddp::Buffer> parameters = network->parameters();
    const std::vector<ddp::Buffer> velocities = network->velocities();
    std::vector<ddp::ParamSpec> specs;
    std::size_t count = 0;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        specs.push_back({Network::kNames[i], parameters[i].count});
        count += parameters[i].count;
    }
    ddp::GradientReducer reducer(context.world(), specs, {.limits = kBuckets});
    reducer.sync_parameters(parameters, 0, stream);
    std::vector<ddp::Buffer> gradients;  // views into the reducer's buckets
    for (std::size_t i = 0; i < parameters.size(); ++i) gradients.push_back(reducer.grad(i));
    const float rate = options.rate > 0 ? options.rate : default_rate(options.global_batch);

    // 3. After a restart, continue from the newest checkpoint. This is what it holds:
    std::array<double, 2> losses{};
    auto& [loss_first, loss_last] = losses;
    std::vector<ddp::NamedBuffer> state{{"run.losses", losses}};
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        state.push_back({Network::kNames[i], parameters[i]});
        state.push_back({concat(Network::kNames[i], ".velocity"), velocities[i]});
    }
    Recovery recovery(options, context, text.fingerprint, state, stream);
    const std::size_t resumed_step = recovery.resume();

    const bool is_first = context.rank() == 0;
    LossLog loss_log(is_first ? options.loss_log : "", resumed_step);
    Progress progress(options.progress && is_first, options.steps, options.global_batch);
    progress.note(concat(count, " parameters in ", reducer.plan().buckets.size(), " buckets; world size ",
                         context.world_size(), "; ", text.bytes.size() / 1000, " KB of text; learning rate ", rate));
    if (resumed_step > 0)
        progress.note(concat("resumed after step ", resumed_step));
    else if (context.restart_count() > 0 && options.checkpoint_dir.empty())
        progress.note("starts again with step 1; with --checkpoint-dir DIR it would resume");

    // A GPU does its steps later than this thread enqueues them. Only those that it has done with right averages may be
    // saved: if a rank is lost, the job resumes before them.
    const auto save = [&](std::size_t at) {
        network->wait();
        if (const ddp::ReducerStats stats = reducer.stats(); stats.confirmed != stats.steps)
            throw ddp::Error(ddp::ErrorCode::Aborted, concat("the averages of step ", at, " are incomplete"));
        return recovery.save(at);
    };

    // 4. Train. Gradients are sent bucket by bucket while backward still computes the layers below.
    std::size_t step = resumed_step;
    bool preempted = false;
    while (step < options.steps && !preempted) {
        ddp::set_step(++step);  // so that ddprun can report the goodput
        const Batch& batch = batches.of_step(step);
        network->forward(batch);  // on a GPU this, and all that follows, is queued on the stream
        reducer.begin_backward(true, stream);
        network->backward(batch, average_share, gradients, [&](std::size_t i) {
            progress.computed();
            if (options.overlap) reducer.mark_ready(i, stream);
        });
        for (std::size_t i = gradients.size(); !options.overlap && i-- > 0;) reducer.mark_ready(i, stream);
        double loss = network->loss();
        ddp::Work loss_sum = context.world().all_reduce(loss, ddp::ReduceOp::Sum);  // runs meanwhile
        reducer.finish_backward(stream);  // all ranks' gradients are the same average now, bit for bit
        progress.averaged();
        const float warm_rate = rate * std::min(static_cast<float>(step), 20.0f) / 20;
        network->update(gradients, reducer.step_ok(), warm_rate);

        loss_sum.wait();
        loss_last = loss / static_cast<double>(options.global_batch);
        if (step == 1) loss_first = loss_last;
        if (!std::isfinite(loss_last)) {  // on all ranks
            const std::string problem = concat("the loss is not finite (", loss_last, ") at step ", step);
            throw UserError(is_first ? problem + ". Pass a smaller --lr" : "");
        }
        loss_log.write(step, loss_last);
        if (recovery.is_due(step)) save(step);
        progress.end_step(step, loss_last);

        // 5. Before a preemption all ranks stop here in the same step, and save it.
        preempted = step < options.steps && ddp::agree_to_stop();
        if (preempted && save(step))
            progress.note(concat("preempted: saved step ", step));
        else if (preempted)
            progress.note(concat("preempted at step ", step, "; with --checkpoint-dir DIR it would resume"));
    }
    return {.steps = step,
            .loss_first = loss_first,
            .loss_last = loss_last,
            .rate = rate,
            .samples_per_s = progress.samples_per_s(),
            .exposed_ms = progress.exposed_ms(context),
            .preempted = preempted};
}

}  // namespace train
