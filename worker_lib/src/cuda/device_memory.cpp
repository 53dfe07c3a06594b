#include "worker_lib/src/cuda/device_memory.hpp"

#include <array>
#include <atomic>

#include "common/mutex.hpp"
#include "worker_lib/src/cuda/driver.hpp"

namespace ddp::detail {
namespace {

using PointerQuery = decltype(CudaApi::pointer_get_attributes);

std::atomic<PointerQuery> pointer_query{nullptr};
ddprun::Mutex lookups_mutex;
int begun_lookups GUARDED_BY(lookups_mutex) = 0;  // and not ended

}  // namespace

std::optional<int> device_holding(const void* address) {
    const PointerQuery ask = pointer_query.load(std::memory_order_acquire);
    if (ask == nullptr || address == nullptr) return std::nullopt;
    unsigned type = 0, managed = 0;
    int device = 0;
    std::array attributes{CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                          CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    std::array<void*, attributes.size()> values{&type, &managed, &device};
    const CUresult asked = ask(attributes.size(), attributes.data(), values.data(), device_pointer(address));
    if (asked != CUDA_SUCCESS || type != CU_MEMORYTYPE_DEVICE || managed != 0) return std::nullopt;
    return device;
}

void begin_lookups(const CudaApi& cuda) {
    const ddprun::Lock lock(lookups_mutex);
    ++begun_lookups;
    pointer_query.store(cuda.pointer_get_attributes, std::memory_order_release);
}

void end_lookups() {
    const ddprun::Lock lock(lookups_mutex);
    if (--begun_lookups == 0) pointer_query.store(nullptr, std::memory_order_release);
}

}  // namespace ddp::detail
