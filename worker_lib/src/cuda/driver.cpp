#include "worker_lib/src/cuda/driver.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "ddp/error.hpp"
#include "worker_lib/src/util/dynamic_library.hpp"

namespace ddp::detail {
namespace {

using ddprun::Errc;
using ddprun::Result;

constexpr const char* kCudaDriver = "libcuda.so.1";

// The table has one row for each member, so that no member stays null.
#define DDP_COUNT(...) +1
static_assert(sizeof(CudaApi) == (0 DDP_CUDA_FUNCTIONS(DDP_COUNT)) * sizeof(void*));
#undef DDP_COUNT

}  // namespace

Result<CudaApi> load_cuda() {
    DynamicLibrary library(kCudaDriver);
    CudaApi cuda;
#define DDP_BIND(member, symbol, suffix) library.bind(cuda.member, #symbol #suffix);
    DDP_CUDA_FUNCTIONS(DDP_BIND)
#undef DDP_BIND
    if (library.problem().empty()) return cuda;
    if (library.opened())
        return ddprun::Error{Errc::kMismatch, fmt::format("the CUDA driver is too old: {}", library.problem())};
    const bool absent = library.problem().find("No such file") != std::string::npos;
    return ddprun::Error{Errc::kNotFound,
                         fmt::format("there is no CUDA driver ({})",
                                     absent ? fmt::format("{} was not found", kCudaDriver) : library.problem())};
}

Result<int> count_devices(const CudaApi& cuda) {
    int count = 0;
    CUresult error = cuda.init(0);
    if (error == CUDA_SUCCESS) error = cuda.device_get_count(&count);
    if (error != CUDA_SUCCESS && error != CUDA_ERROR_NO_DEVICE) {
        return ddprun::Error{Errc::kNotFound,
                             fmt::format("the CUDA driver does not start: {} (see nvidia-smi, and `dmesg | grep NVRM`)",
                                         cuda_error_text(cuda, error))};
    }
    if (count == 0) return ddprun::Error{Errc::kNotFound, "there is no CUDA device" + visible_devices_note()};
    return count;
}

std::string visible_devices_note() {
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    return visible == nullptr ? "" : fmt::format(" (CUDA_VISIBLE_DEVICES={})", *visible == '\0' ? "''" : visible);
}

std::string device_bus_id(const CudaApi& cuda, int index) {
    CUdevice device = 0;
    int domain = 0, bus = 0, slot = 0;
    const bool known = cuda.device_get(&device, index) == CUDA_SUCCESS &&
                       cuda.device_get_attribute(&domain, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, device) == CUDA_SUCCESS &&
                       cuda.device_get_attribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device) == CUDA_SUCCESS &&
                       cuda.device_get_attribute(&slot, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, device) == CUDA_SUCCESS;
    return known ? fmt::format("{:04x}:{:02x}:{:02x}", domain, bus, slot) : "";
}

std::string device_uuid(const CudaApi& cuda, int index) {
    CUdevice device = 0;
    CUuuid uuid{};
    if (cuda.device_get(&device, index) != CUDA_SUCCESS || cuda.device_get_uuid(&uuid, device) != CUDA_SUCCESS)
        return {};
    std::string text = "GPU-";
    for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
        if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
        text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
    }
    return text;
}

std::string cuda_error_text(const CudaApi& cuda, CUresult error) {
    const char* name = nullptr;
    const char* text = nullptr;
    const bool known = cuda.get_error_name(error, &name) == CUDA_SUCCESS &&
                       cuda.get_error_string(error, &text) == CUDA_SUCCESS && name != nullptr && text != nullptr;
    return known ? fmt::format("{} ({})", text, name) : fmt::format("CUDA error {}", static_cast<unsigned>(error));
}

void check_cuda(const CudaApi& cuda, CUresult error, std::string_view what) {
    if (error == CUDA_SUCCESS) return;
    throw Error(ErrorCode::System, fmt::format("{}: {}", what, cuda_error_text(cuda, error)));
}

}  // namespace ddp::detail
