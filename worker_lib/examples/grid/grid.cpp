// Data and model parallelism in one job: the ranks form a grid, and each row of it holds the model once.
//
//     ddprun --nproc-per-node 4 grid
//
// Along "model" the weights are shared out: each rank multiplies its part of the inputs, and the products are summed.
// Along "data" the samples are shared out: gradients are averaged over the ranks that have the same weights. All shapes
// of the grid learn the same.

#include <ddp/ddp.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

namespace {

constexpr int kSamples = 32, kInputs = 12, kSteps = 50;

double input(int sample, int i) { return std::sin(0.7 * sample * (i % 4 + 1) + i); }
double target(int sample) { return std::cos(0.7 * sample) + std::sin(1.4 * sample) / 2; }

}  // namespace

int main() try {
    ddp::Context context = ddp::init_from_env({.backend = ddp::Backend::Native});
    const int parts = context.world_size() % 2 == 0 ? 2 : 1;
    ddp::Mesh mesh(context, {{"data", context.world_size() / parts}, {"model", parts}});

    const int part = kInputs / parts, first = part * mesh.coordinate("model");
    std::vector<double> weights(part);
    ddp::GradientReducer reducer(mesh["data"], {{"weights", weights.size(), ddp::DType::F64}});
    const auto gradients = reducer.grad<double>(0);

    for (int step = 1; step <= kSteps; ++step) {
        std::vector<double> outputs;
        for (int sample = mesh.coordinate("data"); sample < kSamples; sample += mesh.size("data")) {
            double& output = outputs.emplace_back(0);
            for (int i = 0; i < part; ++i) output += weights[i] * input(sample, first + i);
        }
        mesh["model"].all_reduce(outputs, ddp::ReduceOp::Sum).wait();

        double loss = 0;
        int sample = mesh.coordinate("data");
        reducer.zero_grads();
        reducer.begin_backward();
        for (const double output : outputs) {
            const double error = output - target(sample);
            loss += error * error / kSamples;
            for (int i = 0; i < part; ++i)
                gradients[i] += error * input(sample, first + i) * mesh.size("data") / kSamples;
            sample += mesh.size("data");
        }
        reducer.mark_ready(0);
        reducer.finish_backward();
        for (int i = 0; i < part; ++i) weights[i] -= 0.05 * gradients[i];

        mesh["data"].all_reduce(loss, ddp::ReduceOp::Sum).wait();
        if (context.rank() == 0 && step % 10 == 0) std::printf("step %d: loss %.8f\n", step, loss);
    }
    std::printf("rank %d: row %d of %d, column %d of %d\n", context.rank(), mesh.coordinate("data"), mesh.size("data"),
                mesh.coordinate("model"), mesh.size("model"));
} catch (const ddp::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
