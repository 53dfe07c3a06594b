#include <ddp/ddp.hpp>

#include <cstdio>

int main() try {
    // Finds the other ranks by the environment that ddprun or torchrun has set. Started by hand it is a world of one.
    ddp::Context context = ddp::init_from_env({.backend = ddp::Backend::Native});  // the model lives in host memory

    float points[64];  // on y = 3x + 1
    for (float next = 0; float& x : points) x = next += 1.0F / 64;

    ddp::DistributedSampler sampler(64, context.world_size(), context.rank());  // a new order in each epoch
    float slope = 0, offset = 0, loss = 0;
    ddp::GradientReducer reducer(context.world(), {{"slope", 1}, {"offset", 1}});
    reducer.sync_parameters({slope, offset});  // all ranks begin with the parameters of rank 0
    const auto grad = [&](std::size_t i) -> float& { return reducer.grad<float>(i)[0]; };

    for (unsigned epoch = 0; epoch < 50; ++epoch) {
        sampler.set_epoch(epoch);
        loss = 0;
        for (const auto sample : sampler.indices()) {  // this rank's share of the points
            const float x = points[sample];
            const float error = slope * x + offset - (3 * x + 1);  // forward
            loss += error * error;

            reducer.begin_backward();  // last layer first: ready gradients travel while the rest is computed
            grad(1) = error;
            reducer.mark_ready(1);
            grad(0) = error * x;
            reducer.mark_ready(0);
            reducer.finish_backward();  // now the gradients are the averages of all ranks

            slope -= 0.5F * grad(0);
            offset -= 0.5F * grad(1);
        }
    }
    context.world().all_reduce(loss, ddp::ReduceOp::Sum).wait();
    std::printf("rank %d of %d: y = %.3f x + %.3f, loss %g\n", context.rank(), context.world_size(), slope, offset,
                loss);
} catch (const ddp::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());  // names the rank, its host, the operation and the cause
    return 1;
}
