// What is here, and the first steps of a process (scripts/gpu-check, checks 1, 2 and 13).

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <new>

#include "common/flight_record_layout.hpp"
#include "common/system/unique_fd.hpp"
#include "tests/catch.hpp"
#include "tests/gpu/gpu.hpp"
#include "tests/gpu/report_line.hpp"
#include "worker_lib/src/nccl/library.hpp"

using namespace ddp;
using namespace ddp::test;
using namespace std::chrono_literals;

namespace {

namespace layout = ddprun::flight_record;

std::string cuda_version_text(int version) {
    return version == 0 ? "unknown CUDA" : fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10);
}

/// Makes a flight record for this process, as the agent does for a worker. To be called before anything else of the
/// library. Returns its memory, which lives until the process ends.
layout::Memory& make_flight_record() {
    static const ddprun::UniqueFd file(::memfd_create("flight record", MFD_ALLOW_SEALING));
    constexpr std::size_t kBytes = sizeof(layout::Memory);
    REQUIRE(::ftruncate(file.get(), kBytes) == 0);
    REQUIRE(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    void* const mapped = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    REQUIRE(mapped != MAP_FAILED);
    ::setenv(layout::kDescriptorVariable, std::to_string(file.get()).c_str(), 1);
    return *new (mapped) layout::Memory;
}

/// Returns the slot of the newest operation.
layout::OperationSlot& newest(layout::Memory& memory) {
    return memory.operations[memory.last_operation.load() % layout::kOperations];
}

std::int64_t now() { return ddprun::Clock::now().time_since_epoch().count(); }

double milliseconds_between(std::int64_t first, std::int64_t second) {
    return std::abs(static_cast<double>(second - first)) / 1e6;
}

}  // namespace

TEST_CASE("gpu: the versions of NCCL and of the driver fit together", "[gpu][check][facts]") {
    const auto nccl = detail::load_nccl();
    if (!nccl) {
        not_tried(nccl.error().message);
        return;
    }
    Dl_info library{};
    REQUIRE(::dladdr(reinterpret_cast<void*>(nccl->api.get_version), &library) != 0);
    int driver = 0;
    const auto cuda = detail::load_cuda();
    if (cuda) CHECK(cuda->driver_get_version(&driver) == CUDA_SUCCESS);
    fact(fmt::format("NCCL {} (built with {}) at {}, driver for {}", detail::nccl_version_text(nccl->version),
                     cuda_version_text(nccl->built_with), library.dli_fname, cuda_version_text(driver)));
    if (!cuda) return not_tried(cuda.error().message);
    CHECK(detail::driver_complaint(nccl->version, nccl->built_with, driver) == "");
}

TEST_CASE("gpu: a first operation is quick, and makes a context on its device alone", "[gpu][check][first]") {
    RETURN_IF_NO_GPU();
    const auto state = Gpu::function<CUresult (*)(CUdevice, unsigned*, int*)>("cuDevicePrimaryCtxGetState");
    const int devices = detail::count_devices(detail::load_cuda().value()).value();
    const auto contexts = [&] {
        std::vector<int> with_context;
        for (int device = 0; device < devices; ++device) {
            unsigned flags = 0;
            int active = 0;
            REQUIRE(state(device, &flags, &active) == CUDA_SUCCESS);
            if (active != 0) with_context.push_back(device);
        }
        return with_context;
    };
    if (state != nullptr) REQUIRE(contexts().empty());
    const auto begin = ddprun::Clock::now();
    Context context = lone_context(Backend::Nccl);
    const Buffer word{context.world().arena().allocate(4), 1, DType::F32, Device::Cuda};
    context.world().all_reduce(word, ReduceOp::Sum).wait_host();
    figure_at_most("first_operation_done_after", seconds_since(begin), "s", 10);
    if (state == nullptr) return not_tried("the driver has no cuDevicePrimaryCtxGetState");
    CHECK(contexts() == std::vector{0});
}

TEST_CASE("gpu: an operation behind a long kernel is recorded as started when the device has come to it",
          "[gpu][check][started]") {
    RETURN_IF_NO_GPU();
    layout::Memory& memory = make_flight_record();
    Gpu gpu;
    Context context = lone_context(Backend::Nccl);
    REQUIRE(memory.pid.load() == ::getpid());  // the library writes this record
    REQUIRE(sums_ones(gpu, context.world()));
    const std::vector<float> values(1 << 20, 1.0f);
    const Buffer buffer = gpu.to_device(values);
    gpu.finish();
    const CUevent reached = gpu.make_event(), passed = gpu.make_event();
    const auto begin = ddprun::Clock::now();
    if (!gpu.hold(std::chrono::seconds(repetitions(5, 1)))) {
        WARN("SKIPPED: neither a kernel nor a function of the host can hold a stream here");
        return;
    }
    gpu.record(reached);
    Work work = context.world().all_reduce(buffer, ReduceOp::Sum, {.stream = gpu.stream()});
    work.wait();
    gpu.record(passed);
    layout::OperationSlot& slot = newest(memory);
    std::this_thread::sleep_for(500ms);  // the watchdog has looked at it by now; the kernel takes longer than this
    CHECK(slot.started.load() == 0);
    CHECK(slot.ended.load() == 0);
    gpu.wait_for(reached);
    const std::int64_t device_reached = now();
    figure("kernel_took", seconds_since(begin), "s");
    gpu.wait_for(passed);
    const std::int64_t device_passed = now();
    work.wait_host();
    REQUIRE(slot.started.load() > 0);
    REQUIRE(slot.ended.load() > 0);
    figure_at_most("started_differs_from_the_device_by", milliseconds_between(slot.started.load(), device_reached),
                   "ms", 10);
    figure_at_most("ended_differs_from_the_device_by", milliseconds_between(slot.ended.load(), device_passed), "ms",
                   10);
}
