// The kernels with the driver that the library loads by its name, which is the fake one here: launches are enqueued.

#include <array>
#include <numeric>
#include <vector>

#include "tests/catch.hpp"
#include "tests/fake_gpu/test_device.hpp"
#include "worker_lib/src/cuda/kernels.hpp"

using namespace ddp;
using namespace ddp::abi;
using ddp::detail::CopyChunk;
using ddp::detail::device_pointer;
using ddp::detail::DeviceScope;
using ddp::detail::GradientKernels;
using ddp::detail::GroupDevice;
using ddp::test::FakeCuda;
using ddp::test::Gate;

namespace {

/// Memory of the device.
class DeviceFloats {
public:
    explicit DeviceFloats(const std::vector<float>& values) : count_(values.size()) {
        FakeCuda::check(cuda_.mem_alloc(&memory_, count_ * sizeof(float)));
        std::copy(values.begin(), values.end(), data());
    }
    ~DeviceFloats() { (void)cuda_.mem_free(memory_); }
    DeviceFloats(const DeviceFloats&) = delete;
    DeviceFloats& operator=(const DeviceFloats&) = delete;
    [[nodiscard]] float* data() const { return reinterpret_cast<float*>(memory_); }
    [[nodiscard]] std::vector<float> values() const { return {data(), data() + count_}; }

private:
    const CudaApi& cuda_ = FakeCuda::instance().api;
    const std::size_t count_;
    CUdeviceptr memory_ = 0;
};

}  // namespace

TEST_CASE("kernels run on their stream, in its order, and keep their own list of chunks", "[cuda][kernels]") {
    const auto device = std::make_shared<GroupDevice>(FakeCuda::instance().api, 0);
    const auto kernels = GradientKernels::of(*device);
    const DeviceScope scope(*device);
    std::vector<float> ones(300, 1);
    const DeviceFloats from(ones);
    const DeviceFloats to(std::vector<float>(300, -1));
    {
        Gate gate(device->stream());
        std::vector<CopyChunk> chunks;  // more than one launch has
        for (std::size_t i = 0; i < ones.size(); ++i) chunks.push_back({to.data() + i, from.data() + i, 1});
        kernels->copy(chunks, DType::F32, DType::F32, 2, device->stream());
        const CopyChunk all{to.data(), to.data(), ones.size()};
        kernels->copy(std::span(&all, 1), DType::F32, DType::F32, 3, device->stream());
        chunks.clear();
        CHECK(to.values() == std::vector<float>(300, -1));  // nothing has run, and no call has waited
    }
    REQUIRE(FakeCuda::instance().stream_synchronize(device->stream()) == CUDA_SUCCESS);
    CHECK(to.values() == std::vector<float>(300, 6));
    CHECK(FakeCuda::instance().misuses() == 0);
}

TEST_CASE("a seal sees the word of the moment in which the device comes to it", "[cuda][kernels]") {
    const bool gives_up = GENERATE(false, true);
    const auto device = std::make_shared<GroupDevice>(FakeCuda::instance().api, 0);
    const auto kernels = GradientKernels::of(*device);
    const DeviceScope scope(*device);
    const CudaApi& cuda = device->cuda();
    void* given_up = nullptr;
    REQUIRE(cuda.mem_host_alloc(&given_up, sizeof(std::uint32_t), kHostAllocPortable) == CUDA_SUCCESS);
    __atomic_store_n(static_cast<std::uint32_t*>(given_up), 0, __ATOMIC_RELAXED);
    CUdeviceptr given_up_on_device = 0;
    REQUIRE(cuda.mem_host_get_device_pointer(&given_up_on_device, given_up, 0) == CUDA_SUCCESS);
    const DeviceFloats average(std::vector<float>(1000, 4));
    const DeviceFloats step_ok({1});  // any word that is not 0
    {
        Gate gate(device->stream());
        kernels->seal(average.data(), 4000, given_up_on_device, device_pointer(step_ok.data()), device->stream());
        if (gives_up) __atomic_store_n(static_cast<std::uint32_t*>(given_up), 1, __ATOMIC_RELAXED);
    }
    REQUIRE(FakeCuda::instance().stream_synchronize(device->stream()) == CUDA_SUCCESS);
    CHECK(average.values() == std::vector<float>(1000, gives_up ? 0.0f : 4.0f));
    CHECK(step_ok.values()[0] == (gives_up ? 0.0f : 1.0f));
    CHECK(cuda.mem_free_host(given_up) == CUDA_SUCCESS);
}
