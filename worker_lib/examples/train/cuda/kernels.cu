// The kernels of the model (cuda/cuda_network.cpp): its loops of model.cpp and support/optimizer.hpp, one thread for
// each element that is written. The sums of a thread have the order that the loops have, and scripts/make-ptx fuses no
// multiplication with an addition. So the CPU and the GPU differ only in exp, log, tanh and cuBLAS. Every kernel runs
// on blocks of train::kBlockThreads in one dimension; threads from `count` on have nothing to do.

#include <math.h>

#include <cstdint>

#define TRAIN_THREAD                                                              \
    const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; \
    if (i >= count) return

/// Element i of the input: number i % width of the vector of byte contexts[i / width].
extern "C" __global__ void train_embed(float* input, const float* embedding, const std::uint8_t* contexts,
                                       std::uint32_t width, std::uint64_t count) {
    TRAIN_THREAD;
    input[i] = embedding[std::uint64_t{contexts[i / width]} * width + i % width];
}

extern "C" __global__ void train_add_bias(float* out, const float* bias, std::uint32_t columns, std::uint64_t count) {
    TRAIN_THREAD;
    out[i] += bias[i % columns];
}

extern "C" __global__ void train_add_bias_tanh(float* out, const float* bias, std::uint32_t columns,
                                               std::uint64_t count) {
    TRAIN_THREAD;
    out[i] = tanhf(out[i] + bias[i % columns]);
}

/// Row i: turns the scores into probabilities, and writes -log p(target).
extern "C" __global__ void train_softmax(float* scores, const std::uint8_t* targets, float* losses,
                                         std::uint32_t symbols, std::uint64_t count) {
    TRAIN_THREAD;
    float* const score = scores + i * symbols;
    float largest = score[0];
    for (std::uint32_t k = 1; k < symbols; ++k) largest = score[k] > largest ? score[k] : largest;
    const float target = score[targets[i]] - largest;
    float total = 0;
    for (std::uint32_t k = 0; k < symbols; ++k) total += score[k] = expf(score[k] - largest);
    for (std::uint32_t k = 0; k < symbols; ++k) score[k] /= total;
    losses[i] = logf(total) - target;
}

/// Softmax with cross entropy: probability minus truth.
extern "C" __global__ void train_softmax_backward(float* probabilities, const std::uint8_t* targets, float divisor,
                                                  std::uint32_t symbols, std::uint64_t count) {
    TRAIN_THREAD;
    const float truth = i % symbols == targets[i / symbols] ? 1.0f : 0.0f;
    probabilities[i] = (probabilities[i] - truth) / divisor;
}

/// Column i: the sum over the rows.
extern "C" __global__ void train_bias_gradient(float* gradient, const float* delta, std::uint64_t rows,
                                               std::uint64_t count) {
    TRAIN_THREAD;
    float sum = 0;
    for (std::uint64_t row = 0; row < rows; ++row) sum += delta[row * count + i];
    gradient[i] = sum;
}

extern "C" __global__ void train_tanh_backward(float* delta, const float* out, std::uint64_t count) {
    TRAIN_THREAD;
    delta[i] *= 1 - out[i] * out[i];
}

/// Number i % width of byte i / width: the sum over the places of the contexts where that byte is.
extern "C" __global__ void train_embedding_gradient(float* gradient, const float* delta, const std::uint8_t* contexts,
                                                    std::uint64_t places, std::uint32_t width, std::uint64_t count) {
    TRAIN_THREAD;
    float sum = 0;
    for (std::uint64_t place = 0; place < places; ++place) {
        if (contexts[place] == i / width) sum += delta[place * width + i % width];
    }
    gradient[i] = sum;
}

/// One step of gradient descent with momentum, unless the averages are wrong.
/// ok   the word of ddp::GradientReducer::step_ok()
extern "C" __global__ void train_sgd(float* parameter, float* velocity, const float* gradient, const std::uint32_t* ok,
                                     float rate, std::uint64_t count) {
    TRAIN_THREAD;
    if (*ok == 0) return;
    velocity[i] = 0.9f * velocity[i] + gradient[i];
    parameter[i] -= rate * velocity[i];
}

/// One step of AdamW, unless the averages are wrong. The factors are those of train::AdamWFactors.
/// ok   the word of ddp::GradientReducer::step_ok()
extern "C" __global__ void train_adamw(float* parameter, float* mean, float* square, const float* gradient,
                                       const std::uint32_t* ok, float decay, float rate, float root_correction,
                                       std::uint64_t count) {
    TRAIN_THREAD;
    if (*ok == 0) return;
    mean[i] = 0.9f * mean[i] + static_cast<float>(1 - 0.9) * gradient[i];
    square[i] = 0.999f * square[i] + static_cast<float>(1 - 0.999) * gradient[i] * gradient[i];
    const float size = sqrtf(square[i]) / root_correction + 1e-8f;
    parameter[i] = decay * parameter[i] - rate * mean[i] / size;
}
