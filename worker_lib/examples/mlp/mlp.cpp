// A network with one hidden layer learns to read handwritten digits. Forward, backward and update are written out.
//
//     apt-get download python3-sklearn
//     dpkg-deb --fsys-tarfile python3-sklearn_*.deb | tar -xO --wildcards '*/digits.csv.gz' | gunzip >digits.csv
//     ddprun --nproc-per-node 4 --max-restarts 1 mlp digits.csv checkpoints
//
// The lines that a program of one process does not have are marked with "DDP". They share out the samples, average the
// gradients of the second layer while those of the first are computed, and resume after a failure. To see the latter,
// pass an epoch as third argument: a rank kills itself in it, and the restarted job goes on with the same losses.

#include <ddp/ddp.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kPixels = 64, kHidden = 32, kDigits = 10, kBatch = 16, kEpochs = 6;
constexpr float kLearningRate = 0.02F, kMomentum = 0.9F;

struct Sample {
    std::array<float, kPixels> pixels;  // 0 to 1
    std::size_t digit;
};

// Reads lines of 64 pixels, 0 to 16, and the digit.
std::vector<Sample> read_digits(const std::string& path) {
    std::ifstream file(path);
    std::vector<Sample> samples;
    char comma = ',';
    for (Sample sample{}; file >> sample.pixels[0]; samples.push_back(sample)) {
        for (std::size_t i = 1; i < kPixels; ++i) file >> comma >> sample.pixels[i];
        for (float& pixel : sample.pixels) pixel /= 16;
        if (!(file >> comma >> sample.digit) || sample.digit >= kDigits)
            throw std::runtime_error(path + ", line " + std::to_string(samples.size() + 1) +
                                     ": expected 64 pixels and a digit, separated by commas");
    }
    if (!samples.empty() && !file.eof())
        throw std::runtime_error(path + ", line " + std::to_string(samples.size() + 1) + ": expected a number");
    if (samples.empty())
        throw std::runtime_error(
            path + ": cannot be read, or has no digits. The first lines of mlp.cpp show how to get the digits");
    return samples;
}

struct Parameter {
    std::string name;
    std::vector<float> values, velocity;

    Parameter(const char* text, std::size_t count) : name(text), values(count), velocity(count) {}
};

struct Model {
    Parameter weights1{"weights1", kHidden*kPixels}, bias1{"bias1", kHidden};
    Parameter weights2{"weights2", kDigits*kHidden}, bias2{"bias2", kDigits};
};

// The way of one sample through the network: the outputs of the layers, and later the gradients of the loss by them.
struct Pass {
    const Sample* sample;
    std::array<float, kHidden> hidden{}, hidden_error{};
    std::array<float, kDigits> output_error{};
};

// Returns the cross entropy of one sample.
double forward(const Model& model, Pass& pass) {
    for (std::size_t h = 0; h < kHidden; ++h) {
        float sum = model.bias1.values[h];
        for (std::size_t p = 0; p < kPixels; ++p)
            sum += model.weights1.values[h * kPixels + p] * pass.sample->pixels[p];
        pass.hidden[h] = std::max(sum, 0.0F);
    }
    float total = 0;
    for (std::size_t d = 0; d < kDigits; ++d) {
        float sum = model.bias2.values[d];
        for (std::size_t h = 0; h < kHidden; ++h) sum += model.weights2.values[d * kHidden + h] * pass.hidden[h];
        total += pass.output_error[d] = std::exp(sum);
    }
    for (float& error : pass.output_error) error /= total;  // the probabilities of the digits
    const double loss = -std::log(pass.output_error[pass.sample->digit]);
    pass.output_error[pass.sample->digit] -= 1;
    return loss;
}

void backward_through_hidden_layer(const Model& model, Pass& pass) {
    for (std::size_t h = 0; h < kHidden; ++h) {
        for (std::size_t d = 0; pass.hidden[h] > 0 && d < kDigits; ++d)
            pass.hidden_error[h] += model.weights2.values[d * kHidden + h] * pass.output_error[d];
    }
}

// Adds one sample's part of the mean over its batch to the gradients of a layer.
template <std::size_t Outputs, std::size_t Inputs>
void add_gradients(const std::array<float, Outputs>& error, const std::array<float, Inputs>& input, float batch_size,
                   std::span<float> weights, std::span<float> bias) {
    for (std::size_t o = 0; o < Outputs; ++o) {
        for (std::size_t i = 0; i < Inputs; ++i) weights[o * Inputs + i] += error[o] * input[i] / batch_size;
        bias[o] += error[o] / batch_size;
    }
}

void update(Parameter& parameter, std::span<const float> gradient) {
    for (std::size_t i = 0; i < gradient.size(); ++i) {
        parameter.velocity[i] = kMomentum * parameter.velocity[i] + gradient[i];
        parameter.values[i] -= kLearningRate * parameter.velocity[i];
    }
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc != 3 && argc != 4) throw std::runtime_error("usage: mlp DIGITS.csv CHECKPOINTS [EPOCH_TO_FAIL_IN]");
    const std::vector<Sample> samples = read_digits(argv[1]);
    ddp::Context context = ddp::init_from_env({.backend = ddp::Backend::Native});  // DDP
    Model model;
    if (context.rank() == 0) {  // DDP: the other ranks get them below
        float k = 0;
        for (float& weight : model.weights1.values) weight = std::sin(k * k) / 8, ++k;
        for (float& weight : model.weights2.values) weight = std::sin(k * k) / 4, ++k;
    }

    const std::array parameters{&model.weights1, &model.bias1, &model.weights2, &model.bias2};
    std::vector<ddp::ParamSpec> specs;    // DDP
    std::vector<ddp::Buffer> values;      // DDP
    std::vector<ddp::NamedBuffer> state;  // DDP
    for (Parameter* parameter : parameters) {
        specs.push_back({parameter->name, parameter->values.size()});
        values.push_back(parameter->values);
        state.push_back({parameter->name, parameter->values});
        state.push_back({parameter->name + ".velocity", parameter->velocity});
    }
    ddp::GradientReducer reducer(context.world(), specs, {.limits = {1024, 1024}});         // DDP: a bucket per layer
    ddp::DistributedSampler sampler(samples.size(), context.world_size(), context.rank());  // DDP
    ddp::Checkpointer checkpointer(argv[2], context);                                       // DDP
    std::size_t epoch = 1;
    if (const auto saved = checkpointer.latest()) {  // DDP
        checkpointer.load(*saved, state);
        epoch = *saved + 1;
        if (context.rank() == 0) std::printf("resumed after epoch %zu\n", *saved);
    } else {
        reducer.sync_parameters(values);  // DDP
    }
    const std::string epoch_to_fail_in = argc == 4 && context.restart_count() == 0 ? argv[3] : "";

    for (; epoch <= kEpochs; ++epoch) {
        sampler.set_epoch(epoch);  // DDP
        const std::vector<std::int64_t> order = sampler.indices();
        double losses = 0, batches = 0;
        for (std::size_t first = 0; first < order.size(); first += kBatch) {
            std::vector<Pass> batch;
            double loss = 0;
            float size = 0;
            for (std::size_t i = first; i < std::min(first + kBatch, order.size()); ++i, ++size)
                loss += forward(model, batch.emplace_back(Pass{&samples[order[i]]}));
            losses += loss / size, ++batches;

            reducer.zero_grads();
            reducer.begin_backward();  // DDP
            for (const Pass& pass : batch)
                add_gradients(pass.output_error, pass.hidden, size, reducer.grad<float>(2), reducer.grad<float>(3));
            reducer.mark_ready(3);  // DDP: the gradients of the second layer travel from now on
            reducer.mark_ready(2);  // DDP
            for (Pass& pass : batch) {
                backward_through_hidden_layer(model, pass);
                add_gradients(pass.hidden_error, pass.sample->pixels, size, reducer.grad<float>(0),
                              reducer.grad<float>(1));
            }
            reducer.mark_ready(1);      // DDP
            reducer.mark_ready(0);      // DDP
            reducer.finish_backward();  // DDP: now all are the averages of all ranks
            for (std::size_t i = 0; i < parameters.size(); ++i) update(*parameters[i], reducer.grad<float>(i));
        }
        if (std::to_string(epoch) == epoch_to_fail_in && context.rank() == context.world_size() - 1)
            std::raise(SIGKILL);

        double mean = losses / batches;
        context.world().all_reduce(mean, ddp::ReduceOp::Avg).wait();  // DDP
        if (context.rank() == 0) std::printf("epoch %zu: loss %.8f\n", epoch, mean);
        std::fflush(stdout);
        checkpointer.save(epoch, state);  // DDP
    }
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
