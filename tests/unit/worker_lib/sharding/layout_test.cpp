// Where the tensors of units lie, and which part each rank owns.
#include <algorithm>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/sharding/mlp.hpp"
#include "worker_lib/src/sharding/shard_layout.hpp"

using ddp::ParamSpec;
using ddp::detail::lay_out_units;
using ddp::detail::ShardLayout;

namespace {

/// Returns how many elements of a unit each rank owns, the gaps between tensors included.
std::vector<std::size_t> owned(const ShardLayout& layout, std::size_t unit) {
    std::vector<std::size_t> found;
    const auto& [elements, part, offset, slots] = layout.units[unit];
    for (std::size_t rank = 0; rank < layout.ranks; ++rank)
        found.push_back(std::min((rank + 1) * part, elements) - std::min(rank * part, elements));
    return found;
}

using Sizes = std::vector<std::size_t>;

}  // namespace

TEST_CASE("tensors of a unit lie end to end, and each rank owns an equal range", "[sharding]") {
    const std::vector<std::vector<ParamSpec>> units{{{"a", 30}, {"b", 7}, {"c", 1}, {"d", 20}, {"e", 18}}};
    const ShardLayout two = lay_out_units(units, 2);
    Sizes starts;
    for (const ShardLayout::Slot& slot : two.units[0].slots) starts.push_back(slot.begin);
    CHECK(starts == Sizes{0, 32, 64, 96, 128});
    CHECK(owned(two, 0) == Sizes{96, 50});
    CHECK(owned(lay_out_units(units, 3), 0) == Sizes{64, 64, 18});
    CHECK(owned(lay_out_units(units, 4), 0) == Sizes{64, 64, 18, 0});

    const auto mlp = ddp::testing::Mlp<float>::units();
    const auto all = [&](std::size_t ranks) {
        const ShardLayout layout = lay_out_units(mlp, ranks);
        return std::vector{owned(layout, 0), owned(layout, 1), owned(layout, 2)};
    };
    CHECK(all(2) == std::vector<Sizes>{{96, 42}, {64, 39}, {32, 3}});
    CHECK(all(3) == std::vector<Sizes>{{64, 64, 10}, {64, 39, 0}, {32, 3, 0}});
    CHECK(all(4) == std::vector<Sizes>{{64, 64, 10, 0}, {32, 32, 32, 7}, {32, 3, 0, 0}});
}

TEST_CASE("the ranges of all ranks are each tensor, once", "[sharding]") {
    const std::size_t ranks = GENERATE(1u, 2u, 3u, 4u, 7u, 64u);
    const std::vector<std::vector<ParamSpec>> units{{{"a", 1}, {"b", 100}, {"c", 0}, {"d", 33}}, {{"e", 4097}}};
    const ShardLayout layout = lay_out_units(units, ranks);
    std::vector<std::size_t> next(5, 0);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        for (const ShardLayout::Range& range : layout.ranges(rank)) {
            CHECK(range.begin == next[range.param]);
            next[range.param] += range.count;
            CHECK(range.in_part + range.count <= layout.units[range.unit].part);
        }
    }
    CHECK(next == Sizes{1, 100, 0, 33, 4097});
    CHECK(layout.parts() == layout.units[0].part + layout.units[1].part);
    std::size_t filled = 0;
    for (const std::size_t unit : {0u, 1u}) {
        const Sizes sizes = owned(layout, unit);
        filled += ranks - static_cast<std::size_t>(std::ranges::count(sizes, 0u));
    }
    CHECK(layout.filled_parts() == filled);
}

TEST_CASE("units_by_size ends a unit with the parameter that reaches the number", "[sharding]") {
    const auto units = ddp::units_by_size({{"a", 5}, {"b", 5}, {"c", 20}, {"d", 1}, {"e", 1}}, 10);
    std::vector<Sizes> sizes;
    for (const auto& unit : units) {
        sizes.emplace_back();
        for (const ParamSpec& spec : unit) sizes.back().push_back(spec.count);
    }
    CHECK(sizes == std::vector<Sizes>{{5, 5}, {20}, {1, 1}});
    CHECK_THROWS_WITH(ddp::units_by_size({{"a", 5}}, 0), Catch::Contains("at least 1"));
}
