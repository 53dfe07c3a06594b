#pragma once
// CoreSet: the cores on which a rank may run; and whether each rank of a node can have a core of its own. Pure, but for
// usable_cores().

#include <array>
#include <cstdint>
#include <vector>

namespace ddp::detail {

/// A bit for each of 1,024 cores, the size of cpu_set_t.
using CoreSet = std::array<std::uint64_t, 16>;

/// Returns the cores in the affinity mask of the calling thread.
[[nodiscard]] CoreSet usable_cores();
[[nodiscard]] int count(const CoreSet& cores);

/// Returns whether some of the ranks with these sets have to share a core. Exact if any two sets are nested or
/// disjoint, as launchers make them. For others a greedy assignment decides, which may report sharing that could be
/// avoided.
[[nodiscard]] bool share_cores(std::vector<CoreSet> ranks);

}  // namespace ddp::detail
