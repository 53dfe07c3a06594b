#include "tests/fake_gpu/nccl/checks.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "common/mutex.hpp"
#include "tests/fake_gpu/stream_call.hpp"
#include "worker_lib/src/cuda/abi.hpp"
#include "worker_lib/src/util/thread_id.hpp"

extern "C" ddp::abi::CUresult cuPointerGetAttributes(unsigned count, ddp::abi::CUpointer_attribute* attributes,
                                                     void** values, ddp::abi::CUdeviceptr pointer);

namespace ddp::fake_nccl {
namespace {

struct LastError {
    ddprun::Mutex mutex;
    std::string text GUARDED_BY(mutex);

    static LastError& of_process() {
        static auto* const last = new LastError;  // never destroyed: threads of NCCL outlive main()
        return *last;
    }
};

std::string memory_complaint(const void* at, int device) {
    unsigned type = 0;
    int home = -1;
    std::array attributes{CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    std::array<void*, attributes.size()> values{&type, &home};
    const auto pointer = reinterpret_cast<CUdeviceptr>(at);
    const CUresult asked = ::cuPointerGetAttributes(attributes.size(), attributes.data(), values.data(), pointer);
    if (asked != CUDA_SUCCESS || type == 0) return "is not memory that CUDA knows";
    if (type == CU_MEMORYTYPE_DEVICE && home != device) return fmt::format("is memory of device {}", home);
    return {};  // or memory of the host that the device can reach
}

}  // namespace

ncclResult_t misuse(const std::string& what) {
    ::ddp_fake_cuda_misuse(("NCCL: " + what).c_str());
    return refuse(ncclInvalidUsage, what);
}

ncclResult_t refuse(ncclResult_t result, std::string text) {
    LastError& last = LastError::of_process();
    const ddprun::Lock lock(last.mutex);
    last.text = std::move(text);
    return result;
}

const char* last_error() {
    thread_local std::string copy;
    LastError& last = LastError::of_process();
    const ddprun::Lock lock(last.mutex);
    copy = last.text;
    return copy.c_str();
}

std::string memory_complaint(const Range& memory, int device) {
    if (memory.bytes == 0) return {};
    const auto* const begin = static_cast<const std::byte*>(memory.begin);
    std::string wrong = begin == nullptr ? "is null" : memory_complaint(static_cast<const void*>(begin), device);
    if (wrong.empty()) wrong = memory_complaint(static_cast<const void*>(begin + memory.bytes - 1), device);
    if (wrong.empty()) return {};
    return fmt::format("a buffer of {} bytes at {} {}; the communicator is on device {}", memory.bytes,
                       fmt::ptr(memory.begin), wrong, device);
}

Visit::Visit(std::atomic<pid_t>& inside, std::string_view communicator, std::string_view function)
    : inside_(inside), before_(inside.exchange(detail::thread_id(), std::memory_order_relaxed)) {
    if (before_ != 0 && before_ != detail::thread_id())
        misuse(fmt::format("{}: {} while another thread is inside this communicator", communicator, function));
}

Visit::~Visit() { inside_.store(before_, std::memory_order_relaxed); }

fake::FaultPlan& faults() {
#define DDP_NAME(member, function) #function,
    static constexpr const char* kCalls[] = {DDP_NCCL_FUNCTIONS(DDP_NAME) "launch", "kernel"};
#undef DDP_NAME
    static auto* const plan = new fake::FaultPlan(fake::FaultPlan::from_environment("DDP_FAKE_NCCL_FAULTS", kCalls));
    return *plan;
}

}  // namespace ddp::fake_nccl
