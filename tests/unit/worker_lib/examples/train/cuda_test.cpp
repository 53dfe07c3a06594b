// The network on a GPU, over the fake libraries of tests/fake_gpu: it has the CPU's bits.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <string>

#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"
#include "worker_lib/examples/train/cuda/cublas.hpp"
#include "worker_lib/examples/train/cuda/cuda_network.hpp"
#include "worker_lib/examples/train/cuda/gpu.hpp"
#include "worker_lib/examples/train/cuda/library.hpp"
#include "worker_lib/examples/train/network.hpp"
#include "worker_lib/examples/train/support/user_error.hpp"

using Catch::Contains;
using train::Batch;
using train::Network;

namespace {

train::Options tiny(train::Optimizer optimizer = train::Optimizer::kSgd) {
    train::Options options;
    options.optimizer = optimizer;
    options.shape = {.context = 3, .embedding = 4, .hidden1 = 37, .hidden2 = 6};
    return options;
}

/// Memory of the fake's device, which the host can use, too.
class DeviceMemory final : public ddp::Arena {
public:
    DeviceMemory() {
        const train::Library driver({"libcuda.so.1"});
        driver.bind(allocate_, "cuMemAlloc_v2");
        driver.bind(free_, "cuMemFree_v2");
    }
    ~DeviceMemory() override {
        for (const unsigned long long block : blocks_) (void)free_(block);
    }
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;
    using ddp::Arena::allocate;
    [[nodiscard]] void* allocate(std::size_t bytes) override {
        unsigned long long block = 0;
        if (allocate_(&block, std::max<std::size_t>(bytes, 1)) != 0) throw std::bad_alloc();
        blocks_.push_back(block);
        auto* const memory = reinterpret_cast<void*>(block);
        std::memset(memory, 0, bytes);
        return memory;
    }

private:
    int (*allocate_)(unsigned long long* memory, std::size_t bytes) = nullptr;
    int (*free_)(unsigned long long memory) = nullptr;
    std::vector<unsigned long long> blocks_;
};

Batch batch_of(std::size_t rows, std::mt19937& random) {
    Batch batch;
    for (std::size_t i = 0; i < 3 * rows; ++i) batch.contexts.push_back(static_cast<std::uint8_t>(random() % 7));
    for (std::size_t i = 0; i < rows; ++i) batch.targets.push_back(static_cast<std::uint8_t>(random()));
    return batch;
}

/// A network with its gradients, all in memory of the device. The CPU's is there, too, and can use it.
struct Side {
    explicit Side(ddp::Device device, train::Optimizer optimizer = train::Optimizer::kSgd) : options(tiny(optimizer)) {
        network = device == ddp::Device::Cpu ? train::make_cpu_network(options)
                                             : train::make_cuda_network(options, memory, 0, 41);
        for (const ddp::Buffer& parameter : network->parameters()) {
            gradients.emplace_back(memory.allocate<float>(parameter.count));
            std::ranges::fill(gradients.back().as<float>(), 99.0F);
        }
        is_ok = memory.allocate<std::uint32_t>(1);
        is_ok[0] = 1;
    }

    /// Makes one step, and returns the loss.
    double step(const Batch& batch, float rate) {
        network->forward(batch);
        network->backward(batch, 1.5, gradients, [&](std::size_t i) { order.push_back(i); });
        const double loss = network->loss();
        network->update(gradients, is_ok, rate, ++steps);
        network->wait();
        return loss;
    }
    [[nodiscard]] std::vector<float> values() const {
        std::vector<float> all;
        std::vector<ddp::Buffer> buffers = gradients;
        for (std::size_t i = 0; i < gradients.size(); ++i) {
            buffers.push_back(network->parameters()[i]);
            const auto arrays = network->optimizer_arrays(i);
            buffers.insert(buffers.end(), arrays.begin(), arrays.end());
        }
        for (const ddp::Buffer& buffer : buffers) {
            const auto values = values_of(buffer);
            all.insert(all.end(), values.begin(), values.end());
        }
        return all;
    }
    static std::vector<float> values_of(const ddp::Buffer& buffer) {
        const auto* const first = static_cast<const float*>(buffer.data);
        return {first, first + buffer.count};
    }

    train::Options options;
    std::size_t steps = 0;
    train::Gpu gpu{0};  // whose context the memory needs
    DeviceMemory memory;
    std::unique_ptr<Network> network;
    std::vector<ddp::Buffer> gradients;
    std::vector<std::size_t> order;
    std::span<std::uint32_t> is_ok;
};

}  // namespace

TEST_CASE("the network on a GPU has the CPU's loss, gradients and parameters, bit for bit", "[train]") {
    const auto optimizer = GENERATE(train::Optimizer::kSgd, train::Optimizer::kAdamW);
    Side cpu(ddp::Device::Cpu, optimizer);
    Side gpu(ddp::Device::Cuda, optimizer);
    CHECK((gpu.values() == cpu.values()));
    std::mt19937 random(1);
    for (const std::size_t rows : {40, 1, 0, 41, 17, 40}) {
        CAPTURE(rows);
        const Batch batch = batch_of(rows, random);
        CHECK(gpu.step(batch, 0.3F) == cpu.step(batch, 0.3F));
        CHECK((gpu.values() == cpu.values()));  // thousands of numbers
    }
    CHECK(gpu.order == cpu.order);
    CHECK(std::ranges::any_of(Side::values_of(gpu.gradients[0]), [](float value) { return value != 0; }));
}

TEST_CASE("a GPU makes no step with averages that are wrong", "[train]") {
    Side gpu(ddp::Device::Cuda, GENERATE(train::Optimizer::kSgd, train::Optimizer::kAdamW));
    std::mt19937 random(1);
    const auto last_bias = [&] { return Side::values_of(gpu.network->parameters().back()); };
    gpu.is_ok[0] = 0;
    const auto before = last_bias();
    (void)gpu.step(batch_of(5, random), 0.3F);
    CHECK(last_bias() == before);
    gpu.is_ok[0] = 1;
    (void)gpu.step(batch_of(5, random), 0.3F);
    CHECK(last_bias() != before);
}

TEST_CASE("a gradient is marked ready when its kernels are on the stream", "[train]") {
    Side gpu(ddp::Device::Cuda);
    std::mt19937 random(1);
    const Batch batch = batch_of(9, random);
    std::vector<std::vector<float>> when_ready(gpu.gradients.size());
    gpu.network->forward(batch);
    gpu.network->backward(batch, 3, gpu.gradients, [&](std::size_t i) {
        gpu.network->wait();  // for what is on the stream now
        when_ready[i] = Side::values_of(gpu.gradients[i]);
    });
    gpu.network->wait();
    for (std::size_t i = 0; i < when_ready.size(); ++i) CHECK((when_ready[i] == Side::values_of(gpu.gradients[i])));
}

TEST_CASE("without cuBLAS the error has the places and what to install", "[train]") {
    const auto error_of = [](const std::vector<std::string>& files) -> std::string {
        try {
            const train::Cublas cublas(files, {});
        } catch (const train::UserError& error) {
            return error.what();
        }
        return "";
    };
    CHECK_THAT(error_of({"/nowhere/libcublas.so.13"}),
               Contains("there is no cuBLAS: libcublas.so.13 and libcublas.so.12 are neither where the dynamic linker "
                        "looks (LD_LIBRARY_PATH), nor in $CUDA_HOME/lib64, /usr/local/cuda/lib64 or NVIDIA's packages "
                        "of Python. Install the CUDA Toolkit") &&
                   Contains("--device cpu. (/nowhere/libcublas.so.13: cannot open"));
    const TemporaryDirectory directory;
    CHECK_THAT(error_of({directory.file("libcublas.so.13", "", 0600).string()}), Contains("file too short"));
    CHECK_THAT(error_of({"libc.so.6"}), Contains("undefined symbol: cublasCreate_v2. Install a newer version"));
}

TEST_CASE("cuBLAS is looked for in the CUDA Toolkit and in packages of Python", "[train]") {
    const TemporaryDirectory directory;
    const auto toolkit = directory.file("cuda/lib64/libcublas.so.12", "", 0600);
    const auto package =
        directory.file("venv/lib/python3.11/site-packages/nvidia/cublas/lib/libcublas.so.12", "", 0600);
    const auto newer = directory.file("venv/lib/python3.11/site-packages/nvidia/cu13/lib/libcublas.so.13", "", 0600);
    ::setenv("CUDA_HOME", (directory.path() / "cuda").c_str(), 1);
    ::setenv("VIRTUAL_ENV", (directory.path() / "venv").c_str(), 1);
    const auto files = train::cublas_files();
    ::unsetenv("CUDA_HOME");
    ::unsetenv("VIRTUAL_ENV");
    REQUIRE(files.size() >= 5);
    CHECK(files[0] == "libcublas.so.13");
    CHECK(files[1] == "libcublas.so.12");
    CHECK(files[2] == toolkit);
    for (const auto& file : {package, newer}) CHECK(std::ranges::count(files, file.string()) == 1);
}
