// A checkpoint of device memory (scripts/gpu-check, check 22).

#include <fmt/format.h>

#include <filesystem>

#include "ddp/checkpoint.hpp"
#include "tests/catch.hpp"
#include "tests/gpu/gpu.hpp"
#include "tests/gpu/report_line.hpp"
#include "tests/temporary_directory.hpp"

using namespace ddp;
using namespace ddp::test;

namespace {

/// Returns the bytes per second of copies into pinned memory.
double pinned_copy_rate(Gpu& gpu, const Buffer& values) {
    const std::size_t bytes = std::min(values.bytes(), std::size_t{32} << 20);
    void* memory = nullptr;
    REQUIRE(gpu.api().mem_host_alloc(&memory, bytes, kHostAllocPortable) == CUDA_SUCCESS);
    const auto copy = [&] {
        const auto queued = gpu.api().memcpy_async(detail::device_pointer(memory), detail::device_pointer(values.data),
                                                   bytes, static_cast<CUstream>(gpu.stream().handle));
        detail::check_cuda(gpu.api(), queued, "cuMemcpyAsync");
    };
    copy();
    gpu.finish();
    constexpr int kTimes = 50;
    const auto begin = ddprun::Clock::now();
    for (int i = 0; i < kTimes; ++i) copy();
    gpu.finish();
    const double seconds = seconds_since(begin) / kTimes;
    CHECK(gpu.api().mem_free_host(memory) == CUDA_SUCCESS);
    return static_cast<double>(bytes) / seconds;
}

}  // namespace

TEST_CASE("gpu: a large checkpoint keeps its bits, and is copied at the rate of pinned memory",
          "[gpu][check][checkpoint]") {
    RETURN_IF_NO_GPU();
    const char* const given = std::getenv("GPU_CHECK_FOLDER");
    const TemporaryDirectory own;
    const std::filesystem::path folder = given != nullptr ? std::filesystem::path(given) : own.path();
    Gpu gpu;
    Context context = lone_context(Backend::Nccl);
    const std::size_t count = static_cast<std::size_t>(repetitions(1 << 30, 1 << 20));  // 4 GiB of floats
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 16'777'213);
    const Buffer saved = gpu.to_device(values);
    gpu.finish();
    Checkpointer checkpointer(folder, context, {.keep = 1});
    const double bytes = static_cast<double>(saved.bytes());
    const double pinned = pinned_copy_rate(gpu, saved);
    figure("pinned_copy", pinned / 1e9, "GB/s");

    checkpointer.save_async(1, {{"values", saved}}, gpu.stream());  // makes the host memory
    checkpointer.wait();
    auto begin = ddprun::Clock::now();
    checkpointer.save_async(2, {{"values", saved}}, gpu.stream());
    const double rate = bytes / seconds_since(begin);
    checkpointer.wait();
    figure("save_with_the_file", bytes / seconds_since(begin) / 1e9, "GB/s");
    figure("save_async", rate / 1e9, "GB/s");
    figure_at_least("save_async_of_the_pinned_copy", 100 * rate / pinned, "%", 80);

    const Buffer loaded{gpu.allocate(saved.bytes()), count, DType::F32, Device::Cuda};
    begin = ddprun::Clock::now();
    checkpointer.load(2, {{"values", loaded}}, gpu.stream());
    figure("load", bytes / seconds_since(begin) / 1e9, "GB/s");
    std::vector<float> back = gpu.to_host<float>(loaded);
    CHECK((back == values));
}
