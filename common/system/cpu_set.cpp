#include "common/system/cpu_set.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <bit>
#include <climits>
#include <cstddef>
#include <iterator>

#include "common/text/list.hpp"
#include "common/text/number.hpp"

namespace ddprun {
namespace {

constexpr std::size_t kWordBits = sizeof(unsigned long) * CHAR_BIT;

/// Returns the affinity mask of this thread; empty if the kernel does not answer.
CpuMask affinity_mask() {
    // The kernel rejects a mask that is too small for the machine.
    for (std::size_t words = 16; words <= 16384; words *= 2) {
        CpuMask mask(words);
        const std::size_t bytes = words * sizeof(unsigned long);
        if (::sched_getaffinity(0, bytes, reinterpret_cast<cpu_set_t*>(mask.data())) == 0) return mask;
    }
    return {};
}

}  // namespace

CpuMask cpu_mask(const CpuSet& cpus) {
    CpuMask mask(cpus.empty() ? 0 : static_cast<std::size_t>(*cpus.rbegin()) / kWordBits + 1);
    for (const int cpu : cpus) {
        const auto bit = static_cast<std::size_t>(cpu);
        mask[bit / kWordBits] |= 1UL << (bit % kWordBits);
    }
    return mask;
}

CpuSet cpus_in(const CpuMask& mask) {
    CpuSet cpus;
    for (std::size_t bit = 0; bit < mask.size() * kWordBits; ++bit) {
        if ((mask[bit / kWordBits] >> (bit % kWordBits) & 1) != 0) cpus.insert(cpus.end(), static_cast<int>(bit));
    }
    return cpus;
}

CpuSet allowed_cpu_set() { return cpus_in(affinity_mask()); }

int allowed_cpus() {
    int count = 0;
    for (const unsigned long word : affinity_mask()) count += std::popcount(word);
    return std::max(count, 1);
}

std::string number_list(const std::set<int>& numbers) {
    return join_ranges(ranges_in({numbers.begin(), numbers.end()}), ",");
}

CpuSet parse_number_list(std::string_view text) {
    CpuSet cpus;
    text = text.substr(0, text.find('\n'));
    while (!text.empty()) {
        const std::string_view entry = text.substr(0, text.find(','));
        text.remove_prefix(std::min(text.size(), entry.size() + 1));
        const auto dash = entry.find('-');
        const auto first = parse_number<int>(entry.substr(0, dash));
        const auto last = dash == std::string_view::npos ? first : parse_number<int>(entry.substr(dash + 1));
        if (!first || !last) continue;
        for (int cpu = *first; cpu <= *last; ++cpu) cpus.insert(cpus.end(), cpu);
    }
    return cpus;
}

CpuSet common_cpus(const CpuSet& a, const CpuSet& b) {
    CpuSet both;
    std::ranges::set_intersection(a, b, std::inserter(both, both.end()));
    return both;
}

}  // namespace ddprun
