// libnvidia-ml.so.1 for machines without a GPU: answers from environment variables. Each is looked up with the name of
// the node behind it first (FAKE_NVML_DRIVER_node1), so that emulated nodes differ.
//
// FAKE_NVML_GPUS=8  FAKE_NVML_DRIVER=550.54.15  FAKE_NVML_CUDA=12040  FAKE_NVML_ECC=GPU:ERRORS
// FAKE_NVML_PROCESS=GPU:PID:BYTES  FAKE_NVML_BROKEN=1: nvmlInit fails  FAKE_NVML_HANG=1: it never returns

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

constexpr int kSuccess = 0;
constexpr int kNotFound = 6;
constexpr int kNotSupported = 3;
constexpr unsigned long long kGiB = 1ULL << 30;

struct Memory {
    unsigned long long total, free, used;
};
struct ProcessV3 {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

std::string variable(const std::string& name) {
    const char* const node = std::getenv("DDPRUN_NODE_NAME");
    const char* value = node == nullptr ? nullptr : std::getenv(("FAKE_NVML_" + name + "_" + node).c_str());
    if (value == nullptr) value = std::getenv(("FAKE_NVML_" + name).c_str());
    return value == nullptr ? "" : value;
}

/// A device's handle is its number plus one, as a pointer.
unsigned index_of(const void* device) { return static_cast<unsigned>(reinterpret_cast<unsigned long>(device)) - 1; }

int copy(const std::string& text, char* to, unsigned size) {
    std::snprintf(to, size, "%s", text.c_str());
    return text.empty() ? kNotSupported : kSuccess;
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
    while (!variable("HANG").empty()) ::pause();
    return variable("BROKEN").empty() ? kSuccess : kNotFound;
}

int nvmlShutdown() { return kSuccess; }
int nvmlSystemGetDriverVersion(char* text, unsigned size) { return copy(variable("DRIVER"), text, size); }

int nvmlSystemGetCudaDriverVersion_v2(int* version) {
    *version = std::atoi(variable("CUDA").c_str());
    return *version == 0 ? kNotSupported : kSuccess;
}

int nvmlDeviceGetCount_v2(unsigned* count) {
    *count = static_cast<unsigned>(std::atoi(variable("GPUS").c_str()));
    return kSuccess;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
    *device = reinterpret_cast<void*>(static_cast<unsigned long>(index) + 1);
    return kSuccess;
}

int nvmlDeviceGetName(void*, char* text, unsigned size) { return copy("NVIDIA H200", text, size); }

int nvmlDeviceGetUUID(void* device, char* text, unsigned size) {
    return copy("GPU-" + std::to_string(index_of(device)) + "a7e", text, size);
}

int nvmlDeviceGetMemoryInfo(void*, Memory* memory) {
    *memory = {140 * kGiB, 139 * kGiB, kGiB};
    return kSuccess;
}

int nvmlDeviceGetTotalEccErrors(void* device, int type, int counter, unsigned long long* errors) {
    if (type != 1 || counter != 0) return kNotSupported;
    unsigned gpu = 0;
    unsigned long long count = 0;
    const bool given = std::sscanf(variable("ECC").c_str(), "%u:%llu", &gpu, &count) == 2;
    *errors = given && gpu == index_of(device) ? count : 0;
    return kSuccess;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, ProcessV3* processes) {
    unsigned gpu = 0;
    ProcessV3 process{};
    const bool given = std::sscanf(variable("PROCESS").c_str(), "%u:%u:%llu", &gpu, &process.pid, &process.used) == 3;
    const unsigned found = given && gpu == index_of(device) ? 1 : 0;
    if (found > *count) return 7;  // NVML_ERROR_INSUFFICIENT_SIZE
    *count = found;
    if (found == 1) *processes = process;
    return kSuccess;
}

}  // extern "C"
