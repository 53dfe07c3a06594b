#pragma once
// What the floors of an all-reduce add up, and where they do it.
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <span>

namespace ddprun::bench {

namespace detail {

inline void add_two(float* __restrict a, float* __restrict b, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
        const float sum = a[i] + b[i];
        a[i] = sum;
        b[i] = sum;
    }
}

}  // namespace detail

/// The slice of `rank` of buffers of `count` each, added up in the order of ranks, into all of them.
inline void add_up_slice(std::span<float* const> buffers, std::size_t rank, std::size_t count) {
    const std::size_t each = (count / buffers.size()) & ~std::size_t{31};
    const std::size_t begin = rank * each;
    const std::size_t end = rank + 1 == buffers.size() ? count : begin + each;
    if (buffers.size() == 2) return detail::add_two(buffers[0], buffers[1], begin, end);
    constexpr std::size_t kBlock = 512;  // sums stay in the first-level cache
    float sums[kBlock];
    for (std::size_t at = begin; at < end; at += kBlock) {
        const std::size_t size = std::min(kBlock, end - at);
        std::copy_n(buffers[0] + at, size, sums);
        for (float* const buffer : buffers.subspan(1)) {
            for (std::size_t i = 0; i < size; ++i) sums[i] += buffer[at + i];
        }
        for (float* const buffer : buffers) std::copy_n(sums, size, buffer + at);
    }
}

/// The calling thread stays on one of the cores that it may run on, as ranks would: on one and the same, as who leaves
/// a barrier often is, no line has to cross. Returns how many cores there are.
inline int stay_on_core_of(int rank) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) == 0) return 1;
    const int cores = CPU_COUNT(&allowed);
    int left = rank % cores;
    int core = 0;
    while (!CPU_ISSET(core, &allowed) || left-- > 0) ++core;
    CPU_ZERO(&allowed);
    CPU_SET(core, &allowed);
    ::pthread_setaffinity_np(::pthread_self(), sizeof allowed, &allowed);
    return cores;
}

}  // namespace ddprun::bench
