#include "worker_lib/check/gpus.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <iterator>

#include "common/system/within.hpp"
#include "worker_lib/src/bootstrap/environment.hpp"
#include "worker_lib/src/nccl/library.hpp"

namespace ddp::check {
namespace {

// The part of nvml.h that is used here. Its functions and structs keep their layout; later forms have later names.
using NvmlDevice = struct nvmlDevice_st*;
struct NvmlMemory {
    unsigned long long total, free, used;
};
struct NvmlProcess {  // of nvmlDeviceGetComputeRunningProcesses_v3
    unsigned pid;
    unsigned long long used_bytes;
    unsigned gpu_instance, compute_instance;
};
struct NvmlProcessV1 {  // of nvmlDeviceGetComputeRunningProcesses, which drivers before 510 have
    unsigned pid;
    unsigned long long used_bytes;
};
constexpr int kSuccess = 0;
constexpr int kUncorrected = 1;                   // NVML_MEMORY_ERROR_TYPE_UNCORRECTED
constexpr int kVolatile = 0;                      // NVML_VOLATILE_ECC: since the driver was loaded
constexpr std::chrono::seconds kDriverLimit{20};  // kDriverHangs has it, too
constexpr std::string_view kMpsCommand =
    "nvidia-cuda-mps";  // nvidia-cuda-mps-server, of which the kernel keeps 15 bytes
constexpr unsigned kMaxProcesses = 256;
constexpr unsigned long long kUnknownMemory = ~0ULL;  // NVML_VALUE_NOT_AVAILABLE

/// A library that stays open: both have exit handlers of their own.
class Library {
public:
    explicit Library(const char* file) : handle_(::dlopen(file, RTLD_NOW | RTLD_LOCAL)) {}
    [[nodiscard]] bool is_open() const { return handle_ != nullptr; }

    /// Calls a function that returns 0 if it succeeds. Returns whether it exists and did.
    template <typename... Arguments>
    bool call(const char* name, Arguments... arguments) const {
        auto* const function = reinterpret_cast<int (*)(Arguments...)>(::dlsym(handle_, name));
        return function != nullptr && function(arguments...) == kSuccess;
    }

private:
    void* handle_;
};

/// Returns the user whose process it is; empty: it is not visible here.
std::string user_of(unsigned pid) {
    struct stat status {};
    if (::stat(fmt::format("/proc/{}", pid).c_str(), &status) != 0) return "";
    const passwd* const user = ::getpwuid(status.st_uid);
    return user != nullptr ? user->pw_name : std::to_string(status.st_uid);
}

/// Returns whether it is the server of MPS, which uses a GPU for others.
bool is_mps_server(unsigned pid) {
    std::ifstream file(fmt::format("/proc/{}/comm", pid));
    std::string command;
    return std::getline(file, command) && command == kMpsCommand;
}

/// Adds the processes on a GPU but the server of MPS.
template <typename Process>
bool list_processes(const Library& nvml, const char* function, NvmlDevice device, std::vector<GpuProcess>& processes) {
    std::array<Process, kMaxProcesses> found{};
    unsigned count = kMaxProcesses;
    if (!nvml.call(function, device, &count, found.data())) return false;
    for (unsigned i = 0; i < count && i < kMaxProcesses; ++i) {
        if (is_mps_server(found[i].pid)) continue;
        GpuProcess process{.pid = static_cast<int>(found[i].pid), .user = user_of(found[i].pid), .memory_bytes = {}};
        if (found[i].used_bytes != kUnknownMemory)
            process.memory_bytes = static_cast<std::int64_t>(found[i].used_bytes);
        processes.push_back(std::move(process));
    }
    return true;
}

Gpu query_gpu(const Library& nvml, unsigned index) {
    Gpu gpu{.name = fmt::format("GPU {} does not answer", index), .ecc_uncorrected = {}, .processes = {}};
    gpu.index = static_cast<int>(index);
    NvmlDevice device = nullptr;
    if (!nvml.call("nvmlDeviceGetHandleByIndex_v2", index, &device)) return gpu;
    std::array<char, 96> name{};
    if (nvml.call("nvmlDeviceGetName", device, name.data(), static_cast<unsigned>(name.size()))) gpu.name = name.data();
    std::array<char, 96> uuid{};
    if (nvml.call("nvmlDeviceGetUUID", device, uuid.data(), static_cast<unsigned>(uuid.size()))) gpu.uuid = uuid.data();
    NvmlMemory memory{};
    if (nvml.call("nvmlDeviceGetMemoryInfo", device, &memory)) {
        gpu.memory_bytes = static_cast<std::int64_t>(memory.total);
        gpu.used_bytes = static_cast<std::int64_t>(memory.used);
    }
    unsigned long long errors = 0;
    if (nvml.call("nvmlDeviceGetTotalEccErrors", device, kUncorrected, kVolatile, &errors))
        gpu.ecc_uncorrected = static_cast<std::int64_t>(errors);
    if (!list_processes<NvmlProcess>(nvml, "nvmlDeviceGetComputeRunningProcesses_v3", device, gpu.processes))
        (void)list_processes<NvmlProcessV1>(nvml, "nvmlDeviceGetComputeRunningProcesses", device, gpu.processes);
    return gpu;
}

GpuFacts ask_driver() {
    GpuFacts facts;
    const Library nvml("libnvidia-ml.so.1");
    if (!nvml.is_open()) {
        facts.note = "no NVIDIA driver: libnvidia-ml.so.1 is absent";
        return facts;
    }
    if (!nvml.call("nvmlInit_v2")) {
        facts.note = "the NVIDIA driver does not answer: nvidia-smi shows the reason";
        return facts;
    }
    std::array<char, 96> driver{};
    if (nvml.call("nvmlSystemGetDriverVersion", driver.data(), static_cast<unsigned>(driver.size())))
        facts.driver = driver.data();
    int cuda = 0;
    if (nvml.call("nvmlSystemGetCudaDriverVersion_v2", &cuda))
        facts.cuda = fmt::format("{}.{}", cuda / 1000, cuda % 1000 / 10);
    unsigned count = 0;
    if (!nvml.call("nvmlDeviceGetCount_v2", &count)) facts.note = "the NVIDIA driver does not list its GPUs";
    for (unsigned index = 0; index < count; ++index) facts.gpus.push_back(query_gpu(nvml, index));
    (void)nvml.call("nvmlShutdown");
    return facts;
}

}  // namespace

GpuFacts query_gpus() {
    if (auto facts = ddprun::within(kDriverLimit, ask_driver)) return std::move(*facts);
    GpuFacts none;
    none.note = kDriverHangs;
    return none;
}

std::optional<std::string> query_nccl() {
    const detail::Variables variables = detail::process_variables();
    const auto named = variables("DDPRUN_NCCL_LIBRARY");
    std::vector<std::string> files{named.value_or(detail::kNcclLibrary)};
    if (!named) std::ranges::copy(detail::installed_nccl(variables), std::back_inserter(files));
    for (const std::string& file : files) {
        const Library nccl(file.c_str());
        int version = 0;
        if (nccl.is_open() && nccl.call("ncclGetVersion", &version)) return detail::nccl_version_text(version);
    }
    return std::nullopt;
}

}  // namespace ddp::check
