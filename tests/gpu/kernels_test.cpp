// The reducer's kernels on a real device: the host's bits, and the memory's bandwidth.

#include <fmt/format.h>

#include <map>

#include "tests/gpu/gpu.hpp"
#include "tests/gpu/report_line.hpp"
#include "tests/unit/worker_lib/cuda/kernel_cases.hpp"
#include "worker_lib/src/cuda/kernels.hpp"

using namespace ddp;
using namespace ddp::test;
using ddp::detail::CopyChunk;
using ddp::detail::FeedbackChunk;
using ddp::detail::GradientKernels;
using ddp::testing::Bytes;

namespace {

/// Needs no NCCL.
#define RETURN_IF_NO_DEVICE()                                                            \
    if (const auto cuda = detail::load_cuda(); !cuda || !detail::count_devices(*cuda)) { \
        const std::string reason = cuda ? "the driver has none" : cuda.error().message;  \
        WARN("SKIPPED: no CUDA device (" << reason << ")");                              \
        return;                                                                          \
    }

std::shared_ptr<const GradientKernels> make_kernels() {
    return GradientKernels::of(detail::GroupDevice(detail::load_cuda().value(), 0));
}

CUstream handle(const Gpu& gpu) { return static_cast<CUstream>(gpu.stream().handle); }
std::byte* bytes_of(const Buffer& buffer) { return static_cast<std::byte*>(buffer.data); }

}  // namespace

TEST_CASE("gpu: copies have the bits of the host's, for all types, sizes and alignments", "[gpu][kernels]") {
    RETURN_IF_NO_DEVICE();
    const auto conversion = GENERATE(from_range(testing::kConversions));
    const auto [from_type, to_type] = conversion;
    CAPTURE(to_string(from_type), to_string(to_type));
    Gpu gpu;
    const auto kernels = make_kernels();
    for (const std::size_t count : {1u, 8u, 9u, 1023u, 4096u, 4097u, 8192u, 100'003u}) {
        const Bytes values = testing::make_values(count, from_type, static_cast<unsigned>(count));
        const Bytes right = testing::on_host(values, conversion, 1.0 / 3);
        for (const auto& [from_offset, to_offset] : {std::pair{0u, 0u}, {1u, 1u}, {1u, 2u}}) {
            CAPTURE(count, from_offset, to_offset);
            Bytes shifted(from_offset * size_of(from_type));
            shifted.insert(shifted.end(), values.begin(), values.end());
            const Buffer from = gpu.to_device(shifted);
            const std::size_t before = to_offset * size_of(to_type);
            const Buffer to = gpu.to_device(Bytes(before + right.size() + 64, std::byte{0xA5}));
            const CopyChunk chunk{bytes_of(to) + before, bytes_of(from) + from_offset * size_of(from_type), count};
            kernels->copy(std::span(&chunk, 1), from_type, to_type, 1.0 / 3, handle(gpu));
            Bytes wanted(before, std::byte{0xA5});
            wanted.insert(wanted.end(), right.begin(), right.end());
            wanted.resize(wanted.size() + 64, std::byte{0xA5});
            const Bytes got = gpu.to_host<std::byte>(to);
            REQUIRE(std::equal(got.begin() + static_cast<std::ptrdiff_t>(before + right.size()), got.end(),
                               wanted.begin() + static_cast<std::ptrdiff_t>(before + right.size())));
            const auto part = [&](const Bytes& all) {
                return Bytes(all.begin() + static_cast<std::ptrdiff_t>(before),
                             all.begin() + static_cast<std::ptrdiff_t>(before + right.size()));
            };
            REQUIRE(testing::first_difference(part(got), part(wanted), to_type) == -1);
        }
    }
}

TEST_CASE("gpu: error feedback loses nothing", "[gpu][kernels]") {
    RETURN_IF_NO_DEVICE();
    const auto type = GENERATE(DType::F16, DType::BF16);
    Gpu gpu;
    const auto kernels = make_kernels();
    constexpr std::size_t kCount = 100'003;
    std::vector<float> values(kCount);
    for (std::size_t i = 0; i < kCount; ++i) values[i] = 1 + static_cast<float>(i % 4099) / 4096;
    const Buffer gradient = gpu.to_device(values);
    const Buffer residual = gpu.to_device(std::vector<float>(kCount, 0));
    const Buffer wire = gpu.to_device(std::vector<std::uint16_t>(kCount, 0));
    const FeedbackChunk chunk{static_cast<float*>(gradient.data), wire.data, static_cast<float*>(residual.data),
                              kCount};
    kernels->feed_back(std::span(&chunk, 1), type, handle(gpu));
    const auto sent = gpu.to_host<std::uint16_t>(wire);
    const auto lost = gpu.to_host<float>(residual);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
        const float rounded = type == DType::F16 ? float{Float16(values[i])} : float{BFloat16(values[i])};
        const float wide =
            type == DType::F16 ? float{Float16::from_bits(sent[i])} : float{BFloat16::from_bits(sent[i])};
        if (wide != rounded || lost[i] != values[i] - rounded) ++wrong;
    }
    CHECK(wrong == 0);
}

TEST_CASE("gpu: a seal zeroes on demand only, and a hash sees every byte", "[gpu][kernels]") {
    RETURN_IF_NO_DEVICE();
    Gpu gpu;
    const auto kernels = make_kernels();
    std::vector<float> values(1'000'003, 2.5f);
    const Buffer buffer = gpu.to_device(values);
    const Buffer words = gpu.to_device(std::vector<std::uint32_t>{0, 1, 1});  // given up or not, step_ok
    const auto word = [&](std::size_t i) { return detail::device_pointer(bytes_of(words) + 4 * i); };
    const auto hash = [&] {
        const Buffer sum = gpu.to_device(std::vector<std::uint64_t>{0});
        kernels->hash(buffer.data, buffer.bytes(), detail::device_pointer(sum.data), handle(gpu));
        return gpu.to_host<std::uint64_t>(sum)[0];
    };
    const std::uint64_t before = hash();
    kernels->seal(buffer.data, buffer.bytes(), word(0), word(2), handle(gpu));
    CHECK(hash() == before);
    CHECK(gpu.to_host<float>(buffer) == values);
    kernels->seal(buffer.data, buffer.bytes() - 4, word(1), word(2), handle(gpu));
    std::fill(values.begin(), values.end() - 1, 0.0f);
    CHECK(gpu.to_host<float>(buffer) == values);
    CHECK(gpu.to_host<std::uint32_t>(words) == std::vector<std::uint32_t>{0, 1, 0});
    CHECK(hash() != before);
}

TEST_CASE("gpu: packing a bucket of many tensors has the bandwidth of a copy", "[gpu][check][kernels]") {
    RETURN_IF_NO_DEVICE();
    Gpu gpu;
    const auto kernels = make_kernels();
    constexpr std::size_t kElements = 25u << 18;                        // 25 MiB of f32
    const auto buckets = static_cast<std::size_t>(repetitions(16, 1));  // far more than the second-level cache holds
    auto* const from = static_cast<float*>(gpu.allocate(buckets * kElements * 4));
    auto* const to = static_cast<float*>(gpu.allocate(buckets * kElements * 4));
    // 100 tensors to a bucket, most of them small: sizes from 64 to 1.5 million elements.
    std::vector<std::size_t> sizes;
    std::size_t left = kElements;
    for (std::size_t i = 0; i < 99; ++i) sizes.push_back(i % 10 == 0 ? 500'032 : 64u << i % 8);
    for (const std::size_t size : sizes) left -= size;
    sizes.push_back(left);

    const auto seconds = [&](auto&& launch) {
        const int rounds = repetitions(20, 1);
        double best = 1e9;
        for (int sample = 0; sample < repetitions(5, 1); ++sample) {
            launch(0);
            gpu.finish();
            const auto start = ddprun::Clock::now();
            for (int round = 0; round < rounds; ++round) {
                for (std::size_t bucket = 0; bucket < buckets; ++bucket) launch(bucket);
            }
            gpu.finish();
            const std::chrono::duration<double> taken = ddprun::Clock::now() - start;
            best = std::min(best, taken.count() / (static_cast<double>(rounds) * static_cast<double>(buckets)));
        }
        return best;
    };
    const auto cuda = detail::load_cuda().value();
    // Of a copy that reads and writes as many bytes: a short copy does not reach the bandwidth of a long one.
    std::map<std::size_t, double> rates;
    const auto copy_rate = [&](std::size_t moved_bytes) {
        const auto [found, is_new] = rates.try_emplace(moved_bytes);
        if (is_new) {
            found->second = static_cast<double>(moved_bytes) / seconds([&](std::size_t bucket) {
                                const std::size_t at = bucket * kElements;
                                const auto copied =
                                    cuda.memcpy_async(detail::device_pointer(to + at),
                                                      detail::device_pointer(from + at), moved_bytes / 2, handle(gpu));
                                detail::check_cuda(cuda, copied, "cuMemcpyAsync");
                            });
            figure(fmt::format("copy_of_{}_MiB", moved_bytes / 2 >> 20), found->second / 1e9, "GB/s");
        }
        return found->second;
    };
    for (const auto& [from_type, to_type] : testing::kConversions) {
        if (from_type == DType::F64) continue;  // the memory is that of f32
        const std::size_t moved_bytes = (size_of(from_type) + size_of(to_type)) * kElements;
        const double copy = copy_rate(moved_bytes);
        const double packed =
            static_cast<double>(moved_bytes) / seconds([&](std::size_t bucket) {
                std::vector<CopyChunk> chunks;
                std::size_t at = bucket * kElements;
                for (const std::size_t size : sizes) {
                    chunks.push_back({reinterpret_cast<std::byte*>(to) + at * size_of(to_type),
                                      reinterpret_cast<std::byte*>(from) + at * size_of(from_type), size});
                    at += size;
                }
                kernels->copy(chunks, from_type, to_type, 0.5, handle(gpu));
            });
        const std::string name = fmt::format("{}_to_{}", to_string(from_type), to_string(to_type));
        figure(name, packed / 1e9, "GB/s");
        figure_at_least(name + "_of_the_copy", 100 * packed / copy, "%", 90);
    }
}
