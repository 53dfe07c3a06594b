// BlockPlan: every block of small plans, by hand.

#include "worker_lib/src/native/collectives/block_plan.hpp"

#include <array>
#include <tuple>
#include <vector>

#include "tests/catch.hpp"

using namespace ddp;
using namespace ddp::detail;

namespace {

/// source, destination, slot, from, to, bytes
using Row = std::tuple<int, int, std::size_t, std::size_t, std::size_t, std::size_t>;

std::vector<Row> rows(const BlockPlan& plan, const std::vector<int>& sources, const std::vector<int>& destinations) {
    std::vector<Row> all;
    for (const Block& block : plan.between(sources, destinations)) {
        all.emplace_back(block.source, block.destination, block.slot, block.from, block.to, block.bytes);
    }
    return all;
}

using Rows = std::vector<Row>;

constexpr int kAll = Block::kAllRanks;

/// Of three ranks with 2, 0 and 3 elements of 4 bytes; rank 1 is root.
BlockPlan plan_with_counts(OpKind kind) {
    Operation operation;
    operation.kind = kind;
    operation.buffer.dtype = DType::F32;
    operation.output = Buffer{nullptr, 0, DType::F32};
    operation.counts = {2, 0, 3};
    operation.root = 1;
    return {operation, 3};
}

}  // namespace

TEST_CASE("all_gather: a block of each rank that gives something, for everybody", "[native][unit]") {
    const BlockPlan plan = plan_with_counts(OpKind::kAllGatherV);
    CHECK(rows(plan, {0, 1, 2}, {0, 1, 2}) == Rows{{0, kAll, 0, 0, 0, 8}, {2, kAll, 0, 0, 8, 12}});
    CHECK(rows(plan, {2}, {1}) == Rows{{2, kAll, 0, 0, 8, 12}});
    CHECK(plan.slots() == 1);
    CHECK(plan.largest() == 12);
    CHECK(plan.max_between(2, 5) == 2);
}

TEST_CASE("gather: only where the root is", "[native][unit]") {
    const BlockPlan plan = plan_with_counts(OpKind::kGatherV);
    CHECK(rows(plan, {0, 1, 2}, {0, 1}) == Rows{{0, 1, 0, 0, 0, 8}, {2, 1, 0, 0, 8, 12}});
    CHECK(rows(plan, {0, 1, 2}, {0, 2}).empty());
    CHECK(plan.slots() == 1);
    CHECK(plan.max_between(2, 5) == 2);
}

TEST_CASE("scatter: only from where the root is, a slot for each destination", "[native][unit]") {
    const BlockPlan plan = plan_with_counts(OpKind::kScatterV);
    CHECK(rows(plan, {1}, {0, 1, 2}) == Rows{{1, 0, 0, 0, 0, 8}, {1, 2, 2, 8, 0, 12}});
    CHECK(rows(plan, {0, 2}, {0, 1, 2}).empty());
    CHECK(plan.slots() == 3);
    CHECK(plan.max_between(2, 5) == 5);
}

TEST_CASE("all_to_all: inputs by destination, outputs by source", "[native][unit]") {
    const std::array<std::uint64_t, 4> sends{1, 2, 3, 0};
    const BlockPlan plan = BlockPlan::all_to_all(sends, 2, 8);
    CHECK(rows(plan, {0, 1}, {0, 1}) == Rows{{0, 0, 0, 0, 0, 8}, {0, 1, 1, 8, 0, 16}, {1, 0, 0, 0, 8, 24}});
    CHECK(rows(plan, {1}, {1}).empty());
    CHECK(plan.slots() == 2);
    CHECK(plan.largest() == 24);
    CHECK(plan.max_between(2, 5) == 10);
}

TEST_CASE("equal parts: of the input for all_to_all, of the part itself elsewhere", "[native][unit]") {
    Operation operation;
    operation.kind = OpKind::kAllToAll;
    operation.buffer = {nullptr, 6, DType::F16};
    operation.output = operation.buffer;
    CHECK(rows({operation, 3}, {2}, {1}) == Rows{{2, 1, 1, 4, 8, 4}});
    operation.kind = OpKind::kAllGather;
    CHECK(rows({operation, 3}, {2}, {1}) == Rows{{2, kAll, 0, 0, 24, 12}});
    CHECK(rows(BlockPlan::all_gather(5, 3), {0, 1}, {2}) == Rows{{0, kAll, 0, 0, 0, 5}, {1, kAll, 0, 0, 5, 5}});
}
