// Ranks with different numbers of batches train together, and average their gradients after every fourth batch only.
//
//     ddprun --nproc-per-node 4 accumulate_and_join
//
// Gradient accumulation: begin_backward(false) adds to the gradients and sends nothing. (Where another function calls
// begin_backward(), the guard that reducer.no_sync() returns has the same effect.) Join: a rank without a batch takes
// part with gradients of zero, until no rank has one. Without it the other ranks would wait until their timeout.

#include <ddp/ddp.hpp>

#include <array>
#include <cstdio>

namespace {

constexpr int kAccumulated = 4;
constexpr double kLearningRate = 0.2;

}  // namespace

int main() try {
    ddp::Context context = ddp::init_from_env({.backend = ddp::Backend::Native});
    const int rank = context.rank();
    const int batches = kAccumulated * (25 + 5 * rank);  // every rank has another number of them

    double slope = 0, offset = 0;
    ddp::GradientReducer reducer(context.world(), {{"slope", 1, ddp::DType::F64}, {"offset", 1, ddp::DType::F64}});
    double& slope_gradient = reducer.grad<double>(0)[0];
    double& offset_gradient = reducer.grad<double>(1)[0];
    ddp::Join join(context.world(), reducer);

    int updates = 0;
    double own_loss = 0, own_samples = 0, loss = 0, samples = 0;
    for (int batch = 0;; ++batch) {
        const bool sync = batch % kAccumulated == kAccumulated - 1;
        std::array sums{own_loss, own_samples};  // of the batch before: they are summed in the same exchange
        const bool more = join.more(batch < batches, {.sync = sync, .sums = sums});
        loss += sums[0];
        samples += sums[1];
        if (!more) break;  // all ranks leave the loop at the same time

        const double x = (7 * batch + 3 * rank) % 16 / 16.0;  // a batch of one sample of y = 3x + 1
        const double error = slope * x + offset - (3 * x + 1);
        own_loss = error * error;
        own_samples = 1;
        if (batch % kAccumulated == 0) reducer.zero_grads();
        reducer.begin_backward(sync);
        offset_gradient += error / kAccumulated;
        reducer.mark_ready(1);
        slope_gradient += error * x / kAccumulated;
        reducer.mark_ready(0);
        reducer.finish_backward();
        if (!sync) continue;
        slope -= kLearningRate * slope_gradient;
        offset -= kLearningRate * offset_gradient;
        ++updates;
    }
    // A rank that ended earlier has missed the last updates.
    reducer.sync_parameters({slope, offset}, join.last_active());
    std::printf("rank %d: %d batches, %d updates, y = %.6f x + %.6f, mean loss %.6f of %.0f samples\n", rank, batches,
                updates, slope, offset, loss / samples, samples);
} catch (const ddp::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
