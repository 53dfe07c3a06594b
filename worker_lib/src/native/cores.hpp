#pragma once
// Which cores the ranks of a node may run on, and whether each can have one for itself.

#include <array>
#include <cstdint>
#include <vector>

namespace ddp::detail {

/// A bit for each core, 1,024 of them: as many as the kernel's own sets have without asking.
using CoreSet = std::array<std::uint64_t, 16>;

/// Those of the calling thread, by its affinity.
[[nodiscard]] CoreSet usable_cores();
[[nodiscard]] int count(const CoreSet& cores);

/// Whether some of the ranks with these cores have to share one. A rank that a launcher has bound to a core of its own
/// shares it with nobody, though it has only that one. Exact where of two sets one is part of the other, or they have
/// nothing in common, as launchers make them; elsewhere it may say so though there is a way.
[[nodiscard]] bool share_cores(std::vector<CoreSet> ranks);

}  // namespace ddp::detail
