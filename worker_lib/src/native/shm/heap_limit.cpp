#include "worker_lib/src/native/shm/heap_limit.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

#include "common/system/files.hpp"
#include "ddp/error.hpp"

namespace ddp::detail {

namespace {

constexpr std::size_t kLargestHeap = std::size_t{64} << 30;

/// Returns the lowest memory limit. cgroup v2: of the own group and all its ancestors. v1: of the root, which inside a
/// container is the container's group.
std::optional<std::size_t> cgroup_limit() {
    const std::filesystem::path root = "/sys/fs/cgroup";
    std::optional<std::size_t> least = ddprun::number_in<std::size_t>(root / "memory/memory.limit_in_bytes");
    std::ifstream file("/proc/self/cgroup");
    for (std::string line; std::getline(file, line);) {
        if (!line.starts_with("0::/")) continue;
        for (std::filesystem::path group = line.substr(4);; group = group.parent_path()) {
            const auto limit = ddprun::number_in<std::size_t>(root / group / "memory.max");
            if (limit && (!least || *limit < *least)) least = limit;
            if (group.empty()) break;
        }
    }
    return least;
}

std::optional<std::size_t> machine_memory() {
    const auto pages = ::sysconf(_SC_PHYS_PAGES);
    if (pages <= 0) return std::nullopt;
    return static_cast<std::size_t>(pages) * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

std::optional<std::size_t> file_size_limit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
    return limit.rlim_cur;
}

/// Returns this process's part of what `ulimit -v` leaves: it maps the memory of all ranks of its node, for each of its
/// groups, and the program needs some itself.
std::optional<std::size_t> address_space_limit(std::size_t local_ranks) {
    constexpr std::size_t kParts = 4;
    rlimit limit{};
    if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
    const std::size_t used = ddprun::number_in<std::size_t>("/proc/self/statm").value_or(0) *
                             static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t left = limit.rlim_cur > used ? limit.rlim_cur - used : 0;
    return left / kParts / std::max<std::size_t>(1, local_ranks);
}

}  // namespace

HeapLimit heap_limit_here(std::size_t reserved_bytes, std::size_t local_ranks) {
    HeapLimit least{kLargestHeap, "the largest arena of this library"};
    const auto consider = [&](std::optional<std::size_t> bytes, const char* reason) {
        if (bytes && *bytes < least.bytes) least = {*bytes, reason};
    };
    consider(machine_memory(), "the memory of this machine");
    consider(cgroup_limit(), "the memory limit of this container or batch job (cgroup)");
    consider(address_space_limit(local_ranks), "the limit on the address space (ulimit -v)");
    if (const auto file_bytes = file_size_limit()) {
        // Exceeding this limit raises SIGXFSZ, which ends the process: it must be known beforehand.
        if (*file_bytes < reserved_bytes + kHugePage) {
            throw Error(ErrorCode::System,
                        fmt::format("the limit on file sizes (ulimit -f) is {} bytes. It applies to shared memory too, "
                                    "and a group needs at least {} bytes of that. Raise it: ulimit -f unlimited",
                                    *file_bytes, reserved_bytes + kHugePage));
        }
        consider(*file_bytes - reserved_bytes, "the limit on file sizes (ulimit -f)");
    }
    least.bytes = least.bytes / kHugePage * kHugePage;
    return least;
}

}  // namespace ddp::detail
