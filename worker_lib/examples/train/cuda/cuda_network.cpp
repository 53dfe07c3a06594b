// The loops of model.cpp as kernels (kernels.cu) and calls of cuBLAS, in the same order.

#include "cuda/cuda_network.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "cuda/cublas.hpp"
#include "cuda/gpu.hpp"

namespace train {
namespace {

constexpr std::size_t kByteValues = 256;  // values of a byte

/// Owns activations and the optimiser's state, all in the arena of the group. One thread.
class CudaNetwork final : public Network {
public:
    CudaNetwork(const Options& options, ddp::Arena& arena, int local_rank, std::size_t max_rows)
        : gpu_(local_rank),
          cublas_(cublas_files(), gpu_.stream()),
          context_bytes_(options.shape.context),
          embedding_(static_cast<std::uint32_t>(options.shape.embedding)),
          size_{context_bytes_ * embedding_, options.shape.hidden1, options.shape.hidden2, kByteValues},
          optimizer_(options.optimizer) {
        for (std::size_t layer = 0; layer <= kLayers; ++layer)
            activations_[layer] = arena.allocate<float>(max_rows * size_[layer]).data();
        const std::size_t widest = *std::ranges::max_element(size_);
        delta_ = arena.allocate<float>(max_rows * widest).data();
        delta_below_ = arena.allocate<float>(max_rows * widest).data();
        losses_ = arena.allocate<float>(max_rows).data();
        bytes_ = arena.allocate<std::uint8_t>(max_rows * (context_bytes_ + 1)).data();
        host_losses_ = static_cast<float*>(gpu_.allocate_pinned(max_rows * sizeof(float)));
        host_bytes_ = static_cast<std::uint8_t*>(gpu_.allocate_pinned(max_rows * (context_bytes_ + 1)));
        take_parameters(options, arena);
    }

    [[nodiscard]] ddp::Stream stream() const override { return gpu_.stream(); }
    [[nodiscard]] std::vector<ddp::Buffer> parameters() override { return parameters_; }
    [[nodiscard]] std::vector<ddp::Buffer> optimizer_arrays(std::size_t parameter) override {
        return arrays_[parameter];
    }

    void forward(const Batch& batch) override {
        rows_ = batch.size();
        const std::size_t places = batch.contexts.size();
        // loss() has waited for the copy of the batch before this one.
        std::ranges::copy(batch.contexts, host_bytes_);
        std::ranges::copy(batch.targets, host_bytes_ + places);
        gpu_.copy(bytes_, host_bytes_, places + rows_);
        targets_ = bytes_ + places;
        gpu_.launch(Kernel::kEmbed, rows_ * size_[0], activations_[0], constant(parameters_[0]), constant(bytes_),
                    embedding_);
        for (std::size_t layer = 0; layer < kLayers; ++layer) {
            float* const out = activations_[layer + 1];
            gemm(Op::kNormal, Op::kNormal, rows_, size_[layer + 1], size_[layer], activations_[layer],
                 constant(parameters_[weight(layer)]), out);
            const Kernel add = layer + 1 == kLayers ? Kernel::kAddBias : Kernel::kAddBiasTanh;
            gpu_.launch(add, rows_ * size_[layer + 1], out, constant(parameters_[bias(layer)]), columns(layer + 1));
        }
        gpu_.launch(Kernel::kSoftmax, rows_, activations_[kLayers], constant(targets_), losses_, columns(kLayers));
        gpu_.copy(host_losses_, losses_, rows_ * sizeof(float));
        gpu_.mark();
    }

    [[nodiscard]] double loss() override {
        gpu_.wait_for_mark();
        double sum = 0;
        for (std::size_t row = 0; row < rows_; ++row) sum += static_cast<double>(host_losses_[row]);
        return sum;
    }

    void backward(const Batch& batch, double divisor, const std::vector<ddp::Buffer>& gradients,
                  const std::function<void(std::size_t)>& ready) override {
        float* delta = activations_[kLayers];
        float* below = delta_;
        gpu_.launch(Kernel::kSoftmaxBackward, rows_ * kByteValues, delta, constant(targets_),
                    static_cast<float>(divisor), columns(kLayers));
        for (std::size_t layer = kLayers; layer-- > 0;) {
            const std::size_t in = size_[layer];
            const std::size_t out = size_[layer + 1];
            gpu_.launch(Kernel::kBiasGradient, out, floats(gradients[bias(layer)]), constant(delta),
                        std::uint64_t{rows_});
            ready(bias(layer));
            gemm(Op::kTransposed, Op::kNormal, in, out, rows_, activations_[layer], delta,
                 floats(gradients[weight(layer)]));
            ready(weight(layer));
            gemm(Op::kNormal, Op::kTransposed, rows_, in, out, delta, constant(parameters_[weight(layer)]), below);
            delta = below;
            below = delta == delta_ ? delta_below_ : delta_;
            if (layer == 0) break;
            gpu_.launch(Kernel::kTanhBackward, rows_ * in, delta, constant(activations_[layer]));
        }
        gpu_.launch(Kernel::kEmbeddingGradient, kByteValues * embedding_, floats(gradients[0]), constant(delta),
                    constant(bytes_), std::uint64_t{batch.contexts.size()}, embedding_);
        ready(0);
    }

    void update(const std::vector<ddp::Buffer>& gradients, ddp::Buffer ok, float rate, std::size_t step) override {
        const auto* const is_ok = static_cast<const std::uint32_t*>(ok.data);
        const auto factors = adamw_factors<float>(static_cast<double>(rate), step);
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            const ddp::Buffer& values = parameters_[i];
            if (optimizer_ == Optimizer::kSgd)
                gpu_.launch(Kernel::kSgd, values.count, floats(values), floats(arrays_[i][0]), constant(gradients[i]),
                            is_ok, rate);
            else
                gpu_.launch(Kernel::kAdamW, values.count, floats(values), floats(arrays_[i][0]), floats(arrays_[i][1]),
                            constant(gradients[i]), is_ok, factors.decay, factors.rate, factors.root_correction);
        }
    }

    void wait() override { gpu_.wait(); }

private:
    static constexpr std::size_t kLayers = 3;
    static constexpr std::size_t weight(std::size_t layer) { return 1 + 2 * layer; }  // index of the parameter
    static constexpr std::size_t bias(std::size_t layer) { return 2 + 2 * layer; }
    static float* floats(const ddp::Buffer& buffer) { return static_cast<float*>(buffer.data); }
    // Kernels take pointers to const where they only read, and launch() the exact types.
    static const float* constant(const ddp::Buffer& buffer) { return floats(buffer); }
    template <typename T>
    static const T* constant(T* memory) {
        return memory;
    }
    [[nodiscard]] std::uint32_t columns(std::size_t layer) const { return static_cast<std::uint32_t>(size_[layer]); }

    /// Initialises the parameters as the CPU does.
    void take_parameters(const Options& options, ddp::Arena& arena) {
        Model<float> model(options.shape, options.seed);
        const auto values = model.parameters();
        std::size_t largest = 0;
        for (const auto parameter : values) largest = std::max(largest, parameter.size());
        auto* const staging = static_cast<float*>(gpu_.allocate_pinned(largest * sizeof(float)));
        for (const auto parameter : values) {
            const auto memory = arena.allocate<float>(parameter.size());
            parameters_.emplace_back(memory.data(), memory.size(), ddp::Device::Cuda);
            auto& arrays = arrays_.emplace_back();
            while (arrays.size() < array_names(optimizer_).size())
                arrays.emplace_back(arena.allocate<float>(parameter.size()).data(), parameter.size(),
                                    ddp::Device::Cuda);
            std::ranges::copy(parameter, staging);
            gpu_.copy(memory.data(), staging, parameter.size_bytes());
            gpu_.wait();  // before the next one overwrites the staging
        }
    }

    void gemm(Op op_a, Op op_b, std::size_t rows, std::size_t columns, std::size_t inner, const float* a,
              const float* b, float* c) {
        if (rows == 0 || columns == 0) return;
        if (inner == 0) return gpu_.clear(c, rows * columns * sizeof(float));  // a rank without samples
        cublas_.gemm(op_a, op_b, rows, columns, inner, a, b, c);
    }

    Gpu gpu_;
    Cublas cublas_;
    std::size_t context_bytes_;
    std::uint32_t embedding_;                    // numbers per byte
    std::array<std::size_t, kLayers + 1> size_;  // of each layer's input, and of the output
    std::vector<ddp::Buffer> parameters_;
    Optimizer optimizer_;
    std::vector<std::vector<ddp::Buffer>> arrays_;   // of the optimiser, by parameter
    std::array<float*, kLayers + 1> activations_{};  // input of each layer, one row per window; last: probabilities
    float *delta_ = nullptr, *delta_below_ = nullptr;
    float *losses_ = nullptr, *host_losses_ = nullptr;       // of each window
    std::uint8_t *bytes_ = nullptr, *host_bytes_ = nullptr;  // of the contexts, then the targets
    const std::uint8_t* targets_ = nullptr;
    std::size_t rows_ = 0;  // of the last batch
};

}  // namespace

std::unique_ptr<Network> make_cuda_network(const Options& options, ddp::Arena& arena, int local_rank,
                                           std::size_t max_rows) {
    return std::make_unique<CudaNetwork>(options, arena, local_rank, max_rows);
}

}  // namespace train
