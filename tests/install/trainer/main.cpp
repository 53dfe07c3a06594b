// Fits y = 3x + 1 on all ranks together, each with points of its own. Exits with 0 if it has learned it.
#include <ddp/ddp.hpp>

#include <cmath>
#include <cstdio>
#include <span>

int main() try {
    ddp::InitOptions options;
    options.backend = ddp::Backend::Native;  // the model lives in host memory
    ddp::Context context = ddp::init_from_env(options);
    int ranks = 1;
    context.world().all_reduce(ddp::buffer(ranks), ddp::ReduceOp::Sum).wait();

    float slope = context.rank() == 0 ? 0.5f : -9.0f, offset = 0.0f;  // rank 0's are everybody's after the next lines
    ddp::GradientReducer reducer(context.world(), {{"slope", 1}, {"offset", 1}});
    const ddp::Buffer parameters[] = {ddp::buffer(slope), ddp::buffer(offset)};
    reducer.sync_parameters(parameters);
    for (int step = 0; step < 500; ++step) {
        reducer.begin_backward();
        const float x = static_cast<float>((step * context.world_size() + context.rank()) % 7) / 7.0f;
        const float error = slope * x + offset - (3.0f * x + 1.0f);
        *static_cast<float*>(reducer.grad(1).data) = error;
        reducer.mark_ready(1);
        *static_cast<float*>(reducer.grad(0).data) = error * x;
        reducer.mark_ready(0);
        reducer.finish_backward();
        slope -= 0.5f * *static_cast<float*>(reducer.grad(0).data);
        offset -= 0.5f * *static_cast<float*>(reducer.grad(1).data);
    }
    std::printf("rank %d of %d (counted %d): y = %.3f x + %.3f\n", context.rank(), context.world_size(), ranks, slope, offset);
    return ranks == context.world_size() && std::abs(slope - 3) < 0.01 && std::abs(offset - 1) < 0.01 ? 0 : 1;
} catch (const ddp::Error& error) {
    std::fprintf(stderr, "outside_trainer: %s\n", error.what());
    return 1;
}
