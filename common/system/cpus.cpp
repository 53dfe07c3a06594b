#include "common/system/cpus.hpp"

#include <sched.h>

#include <algorithm>
#include <cstddef>

namespace ddprun {

int allowed_cpus() {
    // A mask of the default size has 1024 CPUs; the kernel rejects one that is too small for the machine.
    for (int capacity = 1024; capacity <= 1 << 20; capacity *= 2) {
        cpu_set_t* mask = CPU_ALLOC(capacity);
        if (mask == nullptr) break;
        const std::size_t bytes = CPU_ALLOC_SIZE(capacity);
        const bool known = ::sched_getaffinity(0, bytes, mask) == 0;
        const int count = known ? CPU_COUNT_S(bytes, mask) : 0;
        CPU_FREE(mask);
        if (known) return std::max(count, 1);
    }
    return 1;
}

}  // namespace ddprun
