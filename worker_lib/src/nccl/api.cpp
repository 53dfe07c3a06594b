// Loads NCCL, and with it the CUDA driver.

#include "worker_lib/src/nccl/api.hpp"

#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "worker_lib/src/bootstrap/environment.hpp"
#include "worker_lib/src/nccl/library.hpp"
#include "worker_lib/src/util/dynamic_library.hpp"

namespace ddp::detail {
namespace {

using ddprun::Errc;
using ddprun::Result;

constexpr const char* kNameAnother = "DDPRUN_NCCL_LIBRARY names another file";

// The tables have one row for each member, so that none is forgotten.
#define DDP_COUNT(...) +1
static_assert(sizeof(NcclApi) ==
              (0 DDP_NCCL_FUNCTIONS(DDP_COUNT) DDP_NCCL_OPTIONAL_FUNCTIONS(DDP_COUNT)) * sizeof(void*));
#undef DDP_COUNT

/// Opens the NCCL that DDPRUN_NCCL_LIBRARY names; else a copy that the program has loaded, which the dynamic linker
/// returns, one that the linker finds, or the first of installed_nccl().
Result<DynamicLibrary> open_nccl() {
    const std::string chosen = process_variables()("DDPRUN_NCCL_LIBRARY").value_or("");
    if (!chosen.empty()) {
        DynamicLibrary library(chosen);
        if (library.opened()) return library;
        return ddprun::Error{Errc::kNotFound,
                             fmt::format("DDPRUN_NCCL_LIBRARY={} cannot be loaded ({})", chosen, library.problem())};
    }
    DynamicLibrary library(kNcclLibrary);
    std::string problems = library.problem();
    if (library.opened()) return library;
    for (const std::string& file : installed_nccl(process_variables())) {
        DynamicLibrary other(file);
        if (other.opened()) return other;
        problems += "; " + other.problem();
    }
    return ddprun::Error{Errc::kNotFound,
                         fmt::format("{} was not found ({}), nor in NCCL_HOME or a package of Python; install NCCL, or "
                                     "name its file in DDPRUN_NCCL_LIBRARY",
                                     kNcclLibrary, problems)};
}

/// Returns the CUDA version that NCCL reports in its text, which is among its constants: ncclGetVersion does not return
/// it, and the call that prints it needs a device.
int find_cuda_version(const NcclApi& api, int version) {
    struct Search {
        std::uintptr_t function;
        int version;
        int cuda;
    } search{reinterpret_cast<std::uintptr_t>(api.get_version), version, 0};
    const auto look_into = [](dl_phdr_info* object, std::size_t, void* argument) -> int {
        constexpr std::size_t kMaxBytes = std::size_t{64} << 20;  // the kernels, which come behind, are larger
        Search& wanted = *static_cast<Search*>(argument);
        const auto* const segments = object->dlpi_phdr;
        const auto* const end = segments + object->dlpi_phnum;
        const auto is_of_nccl = [&](const ElfW(Phdr) & segment) {
            const std::uintptr_t begin = object->dlpi_addr + segment.p_vaddr;
            return segment.p_type == PT_LOAD && wanted.function - begin < segment.p_memsz;
        };
        if (std::none_of(segments, end, is_of_nccl)) return 0;
        for (const auto* segment = segments; segment != end && wanted.cuda == 0; ++segment) {
            if (segment->p_type != PT_LOAD || (segment->p_flags & PF_R) == 0) continue;
            const std::string_view image(reinterpret_cast<const char*>(object->dlpi_addr + segment->p_vaddr),
                                         std::min<std::size_t>(segment->p_filesz, kMaxBytes));
            wanted.cuda = cuda_version_in(image, wanted.version);
        }
        return 1;
    };
    (void)::dl_iterate_phdr(look_into, &search);
    return search.cuda;
}

}  // namespace

Result<NcclLibrary> load_nccl() {
    Result<DynamicLibrary> opened = open_nccl();
    if (!opened) return opened.error();
    DynamicLibrary& library = *opened;
    NcclLibrary nccl;
#define DDP_BIND(member, symbol) library.bind(nccl.api.member, #symbol);
    DDP_NCCL_FUNCTIONS(DDP_BIND)
#undef DDP_BIND
#define DDP_BIND(member, symbol) library.bind_if_present(nccl.api.member, #symbol);
    DDP_NCCL_OPTIONAL_FUNCTIONS(DDP_BIND)
#undef DDP_BIND
    if (!library.problem().empty()) {
        return ddprun::Error{Errc::kMismatch, fmt::format("{}; NCCL {} or newer is needed; {}", library.problem(),
                                                          nccl_version_text(kOldestNccl), kNameAnother)};
    }
    if (const ncclResult_t result = nccl.api.get_version(&nccl.version); result != ncclSuccess)
        return ddprun::Error{Errc::kSystem, fmt::format("ncclGetVersion: {}", nccl.api.get_error_string(result))};
    if (nccl.version < kOldestNccl) {
        return ddprun::Error{Errc::kMismatch, fmt::format("NCCL {} ({}) is too old, {} or newer is needed; {}",
                                                          nccl_version_text(nccl.version), library.file(),
                                                          nccl_version_text(kOldestNccl), kNameAnother)};
    }
    nccl.file = library.file();
    nccl.built_with = find_cuda_version(nccl.api, nccl.version);
    return nccl;
}

Result<GpuApi> load_gpu_api() {
    const Result<NcclLibrary> nccl = load_nccl();
    if (!nccl) return nccl.error();
    const Result<CudaApi> cuda = load_cuda();
    if (!cuda) {
        return ddprun::Error{cuda.error().code, fmt::format("NCCL {} is present, but {}",
                                                            nccl_version_text(nccl->version), cuda.error().message)};
    }
    int driver = 0;
    if (const CUresult asked = cuda->driver_get_version(&driver); asked == CUDA_SUCCESS) {
        if (const auto wrong = driver_complaint(nccl->version, nccl->built_with, driver); !wrong.empty())
            return ddprun::Error{Errc::kMismatch, fmt::format("{} (found: {}); {}", wrong, nccl->file, kNameAnother)};
    }
    return GpuApi{nccl->api, *cuda, nccl->version};
}

}  // namespace ddp::detail
