#pragma once
// How large the arena of a rank can be here, and what decides it.

#include <cstddef>
#include <string>

namespace ddp::detail {

struct HeapLimit {
    std::size_t bytes = 0;
    std::string reason;  ///< for errors: "the memory of this machine"
};

/// The least of: 64 GiB, this machine's memory, the memory limits of the cgroups that this process is in (container,
/// batch job), and the limit on file sizes, which the kernel applies to shared memory too.
/// reserved_bytes   what the segment holds besides its heap. Throws Error{System} when not even that is allowed.
[[nodiscard]] HeapLimit heap_limit_here(std::size_t reserved_bytes);

}  // namespace ddp::detail
