// A small convolutional network that learns to read digits, in LibTorch, on all ranks together.
//
//     ddprun --nproc_per_node 4 libtorch_cnn
//
// The lines that a program of one process does not have are marked with "DDP". The digits are drawn: a font of 5 x 7
// pixels at a random position, and noise.

#include <ddp/ddp.hpp>
#include <ddp/torch.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

constexpr int kSamples = 512, kBatch = 16, kEpochs = 4, kSide = 12;

// One row per digit; the seven lines of its picture are five bits each.
constexpr std::uint8_t kFont[10][7] = {
    {14, 17, 19, 21, 25, 17, 14}, {4, 12, 4, 4, 4, 4, 14},    {14, 17, 1, 2, 4, 8, 31},   {31, 2, 4, 2, 1, 17, 14},
    {2, 6, 10, 18, 31, 2, 2},     {31, 16, 30, 1, 1, 17, 14}, {6, 8, 16, 30, 17, 17, 14}, {31, 1, 2, 4, 8, 8, 8},
    {14, 17, 17, 14, 17, 17, 14}, {14, 17, 17, 15, 1, 2, 12}};

struct Digits {
    torch::Tensor images, labels;

    Digits() {
        std::uint64_t state = 1;
        const auto random = [&state](std::int64_t below) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            const std::int64_t high_bits = state >> 33;
            return high_bits % below;
        };
        std::vector<std::int64_t> digits, ink, noise;
        for (int i = 0; i < kSamples; ++i) {
            const auto digit = random(10), top = random(kSide - 6), left = random(kSide - 4);
            digits.push_back(digit);
            for (int y = 0; y < kSide; ++y) {
                for (int x = 0; x < kSide; ++x) {
                    const auto line = y - top, column = x - left;
                    const bool inside = line >= 0 && line < 7 && column >= 0 && column < 5;
                    ink.push_back(inside ? (kFont[digit][line] >> (4 - column)) % 2 : 0);
                    noise.push_back(random(256));
                }
            }
        }
        labels = torch::tensor(digits);
        images = (torch::tensor(ink) + torch::tensor(noise) / 512.0).view({kSamples, 1, kSide, kSide});
    }
};

struct NetImpl : torch::nn::Module {
    torch::nn::Conv2d conv1{register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 3).padding(1)))};
    torch::nn::BatchNorm2d norm{register_module("norm", torch::nn::BatchNorm2d(8))};
    torch::nn::Conv2d conv2{register_module("conv2", torch::nn::Conv2d(8, 16, 3))};
    torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(256, 64))};
    torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(64, 10))};

    torch::Tensor forward(torch::Tensor x) {
        x = torch::max_pool2d(torch::relu(norm(conv1(x))), 2);
        x = torch::relu(conv2(x)).flatten(1);
        return fc2(torch::relu(fc1(x)));
    }
};
TORCH_MODULE(Net);

}  // namespace

int main() try {
    ddp::Context context = ddp::init_from_env({.backend = ddp::Backend::Native});  // DDP
    torch::manual_seed(context.rank());  // all ranks begin with the weights of rank 0
    const Digits digits;
    Net net;
    ddp::torch::DistributedDataParallel model(net, context);                          // DDP
    ddp::DistributedSampler sampler(kSamples, context.world_size(), context.rank());  // DDP
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));

    for (unsigned epoch = 0; epoch < kEpochs; ++epoch) {
        sampler.set_epoch(epoch);  // DDP
        const torch::Tensor order = torch::tensor(sampler.indices());
        double losses = 0, batches = 0;
        const auto began = std::chrono::steady_clock::now();
        for (const torch::Tensor& batch : order.split(kBatch)) {
            optimizer.zero_grad();
            const torch::Tensor output = model(digits.images.index_select(0, batch));
            const torch::Tensor loss = torch::cross_entropy_loss(output, digits.labels.index_select(0, batch));
            loss.backward();
            optimizer.step();
            losses += loss.item<double>();
            ++batches;
        }
        double mean = losses / batches;
        context.world().all_reduce(mean, ddp::ReduceOp::Avg).wait();  // DDP
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
        if (context.rank() == 0)
            std::printf("epoch %u: loss %.8f %.0f images/s\n", epoch, mean, kSamples / seconds.count());
    }
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
