#include "worker_lib/src/native/shm/cores.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstddef>

namespace ddp::detail {

namespace {

constexpr int kBits = 64;

void add(CoreSet& cores, int core) {
    cores[static_cast<std::size_t>(core / kBits)] |= std::uint64_t{1} << (core % kBits);
}

/// Removes the first core of `wanted` from `free`. Returns false if there is none.
bool take_one(CoreSet& free, const CoreSet& wanted) {
    for (std::size_t i = 0; i < free.size(); ++i) {
        const std::uint64_t both = free[i] & wanted[i];
        if (both == 0) continue;
        free[i] ^= both & (~both + 1);
        return true;
    }
    return false;
}

}  // namespace

CoreSet usable_cores() {
    constexpr int kMax = static_cast<int>(CoreSet().size()) * kBits;
    CoreSet cores{};
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    const bool known = ::sched_getaffinity(0, sizeof(allowed), &allowed) == 0;
    // Unknown if the machine has more cores than the set has bits.
    const int online =
        known ? std::min(kMax, CPU_SETSIZE) : static_cast<int>(std::min<long>(kMax, ::sysconf(_SC_NPROCESSORS_ONLN)));
    for (int core = 0; core < online; ++core) {
        if (!known || CPU_ISSET(core, &allowed)) add(cores, core);
    }
    return cores;
}

int count(const CoreSet& cores) {
    int sum = 0;
    for (const std::uint64_t word : cores) sum += std::popcount(word);
    return sum;
}

/// Assigns cores greedily: ranks with the smallest sets choose first.
bool share_cores(std::vector<CoreSet> ranks) {
    std::ranges::stable_sort(ranks, {}, count);
    CoreSet free;
    free.fill(~std::uint64_t{0});
    return !std::ranges::all_of(ranks, [&free](const CoreSet& wanted) { return take_one(free, wanted); });
}

}  // namespace ddp::detail
