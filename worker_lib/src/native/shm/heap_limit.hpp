#pragma once
// HeapLimit: the maximum size of a rank's arena on this machine, and the reason for it.

#include <cstddef>
#include <string>

namespace ddp::detail {

/// Bytes of a huge page. On machines with larger ones, requests for them have no effect.
inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

struct HeapLimit {
    std::size_t bytes = 0;
    std::string reason;  ///< for errors: "the memory of this machine"
};

/// Returns the minimum of: 64 GiB, this machine's memory, the memory limits of the cgroups of this process (container,
/// batch job), the part of `ulimit -v` that one of `local_ranks` may use, and the limit on file sizes, which the kernel
/// applies to shared memory too. Throws Error{System} if not even `reserved_bytes`, the size of the segment without its
/// heap, are allowed.
[[nodiscard]] HeapLimit heap_limit_here(std::size_t reserved_bytes, std::size_t local_ranks);

}  // namespace ddp::detail
