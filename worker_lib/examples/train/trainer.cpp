#include "trainer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "parallel_model.hpp"
#include "support/data.hpp"
#include "support/loss_log.hpp"
#include "support/progress.hpp"
#include "support/recovery.hpp"
#include "support/user_error.hpp"

namespace train {
namespace {

/// Returns the learning rate without --lr. With SGD small batches have gradients that vary more, and diverge with the
/// rate of large ones.
float default_rate(const Options& options) {
    if (options.optimizer == Optimizer::kAdamW) return 0.001f;
    return 0.1f * std::min(static_cast<float>(options.global_batch) / 512, 1.0f);
}

}  // namespace

// main() has called ddp::init_from_env(), so the ranks are connected.
Summary train(const Options& options, ddp::Context& context) {
    // 1. Every rank reads the same data and takes its share of every batch.
    const Text text = read_same_text(options.data, context);
    Batches batches(text, options, context.rank(), context.world_size());

    // 2. Every rank holds the whole model, on its CPU or GPU (replicated.cpp), or a part of it (sharded.cpp).
    const std::unique_ptr<ParallelModel> model =
        options.sharding ? make_sharded_model(options, context) : make_replicated_model(options, context);
    const float rate = options.rate > 0 ? options.rate : default_rate(options);

    // 3. After a restart, continue from the newest checkpoint. This is what it holds:
    std::array<double, 2> losses{};
    auto& [loss_first, loss_last] = losses;
    const std::vector<ddp::NamedShard> state = ddp::concat({{"run.losses", {2}, 0, losses}}, model->state());
    Recovery recovery(options, context, text.fingerprint, state, model->stream());
    const std::size_t resumed_step = recovery.resume();

    const bool is_first = context.rank() == 0;
    LossLog loss_log(is_first ? options.loss_log : "", resumed_step);
    Progress progress(options.progress && is_first, options.steps, options.global_batch);
    progress.note(concat(model->description(), "; world size ", context.world_size(), "; ", text.bytes.size() / 1000,
                         " KB of text; learning rate ", rate));
    if (resumed_step > 0)
        progress.note(concat("resumed after step ", resumed_step));
    else if (context.restart_count() > 0 && options.checkpoint_dir.empty())
        progress.note("starts again with step 1; with --checkpoint-dir DIR it would resume");
    const auto save = [&](std::size_t at) {
        model->wait();
        return recovery.save(at);
    };

    // 4. Train.
    std::size_t step = resumed_step;
    bool preempted = false;
    while (step < options.steps && !preempted) {
        ddp::set_step(++step);  // so that ddprun can report the goodput
        double loss = model->compute(batches.of_step(step), progress);
        ddp::Work loss_sum = context.world().all_reduce(loss, ddp::ReduceOp::Sum);  // runs meanwhile
        model->finish_backward();
        progress.averaged();
        const float warm_rate = rate * std::min(static_cast<float>(step), 20.0f) / 20;
        model->update(warm_rate, step);

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
