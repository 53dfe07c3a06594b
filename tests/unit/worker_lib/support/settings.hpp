#pragma once
// Where every test of a collective takes place: worlds of all shapes, buffers inside and outside the arena.
//
// Under a sanitizer each access costs many times more, and which worlds and buffers there are matters more to it than
// how many elements: there kThorough is false, and tests run through the same settings with fewer sizes.

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/unit/worker_lib/support/local_world.hpp"
#include "tests/unit/worker_lib/support/rank_memory.hpp"

namespace ddp::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kThorough = false;
#else
inline constexpr bool kThorough = true;
#endif

using Shape = std::vector<int>;  ///< ranks per node

struct Setting {
    LocalWorld world;
    Memory memory;

    [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(world.size()); }
    [[nodiscard]] std::string text() const {
        constexpr const char* kNames[] = {"arena", "foreign", "mixed"};
        return fmt::format("{} ranks, {}", fmt::join(world.ranks_per_node, "+"), kNames[static_cast<int>(memory)]);
    }
};

/// Every shape with every kind of memory.
inline std::vector<Setting> settings(const std::vector<Shape>& shapes) {
    std::vector<Setting> all;
    for (const Shape& shape : shapes) {
        for (const Memory memory : {Memory::kArena, Memory::kForeign, Memory::kMixed}) {
            all.push_back({LocalWorld{.ranks_per_node = shape}, memory});
        }
    }
    return all;
}

inline std::vector<Setting> all_settings() {
    return settings({{1}, {2}, {3}, {4}, {5}, {8}, {9}, {1, 1}, {2, 2}, {3, 1}, {1, 3, 2}, {1, 6}, {3, 3, 3}});
}

/// For counts that pass in several rounds. Under a sanitizer with mixed memory only: that is every case,
/// if not in every combination.
inline std::vector<Setting> long_settings(const std::vector<Shape>& shapes) {
    std::vector<Setting> all = settings(shapes);
    if (!kThorough) std::erase_if(all, [](const Setting& setting) { return setting.memory != Memory::kMixed; });
    return all;
}

/// Small counts around those that divide evenly among the ranks, and an odd one of some size.
inline std::vector<std::size_t> awkward_counts(std::size_t ranks, std::size_t odd) {
    if (!kThorough) return {0, ranks + 1, odd};
    return {0, 1, ranks - 1, ranks, ranks + 1, odd};
}

/// Runs `check(Context&, RankMemory&)` on every rank. Returns what each found wrong, as one text.
template <typename Check>
std::string complaints(const Setting& setting, Check check) {
    std::string all;
    for (const std::string& complaint : run_ranks(setting.world, [&](Context& context) -> std::string {
             RankMemory place(context, setting.memory);
             return check(context, place);
         })) {
        all += complaint;
    }
    return all;
}

}  // namespace ddp::testing
