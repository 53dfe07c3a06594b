// gather, scatter and their forms with counts: every root, in place and apart.

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/local_world.hpp"
#include "tests/unit/worker_lib/moved_bytes.hpp"
#include "tests/unit/worker_lib/rank_memory.hpp"

using namespace ddp;
using namespace ddp::testing;

namespace {

struct Case {
    Counts counts;
    DType type = DType::f32;
    int root = 0;
    bool v = false;
    bool in_place = false;
};

/// Everybody's parts, and where a rank's begins.
std::vector<std::byte> whole_of(const Case& one, std::size_t rank, std::size_t& own_offset) {
    std::vector<std::byte> whole;
    for (std::size_t other = 0; other < one.counts.size(); ++other) {
        if (other == rank) own_offset = whole.size();
        append(whole, part_of(static_cast<int>(other), -1, one.counts[other], one.type));
    }
    return whole;
}

std::string gather(Context& context, RankMemory& place, const Case& one) {
    const auto rank = static_cast<std::size_t>(context.rank());
    const bool is_root = context.rank() == one.root;
    std::size_t own_offset = 0;
    const auto expected = whole_of(one, rank, own_offset);
    const auto own = part_of(context.rank(), -1, one.counts[rank], one.type);
    std::byte* const out = is_root ? place.allocate(expected.size()) : nullptr;
    std::byte* const in = is_root && one.in_place ? out + own_offset : place.allocate(own.size());
    std::copy(own.begin(), own.end(), in);
    const Buffer from{in, one.counts[rank], one.type};
    const Buffer to = is_root ? Buffer{out, expected.size() / size_of(one.type), one.type} : Buffer{};
    ProcessGroup& world = context.world();
    (one.v ? world.gather_v(from, to, one.counts, one.root) : world.gather(from, to, one.root)).wait();
    std::string wrong = is_root ? difference(out, expected) : "";
    if (wrong.empty()) wrong = difference(in, own);
    return wrong.empty() ? "" : fmt::format("gather: rank {}: {}\n", rank, wrong);
}

std::string scatter(Context& context, RankMemory& place, const Case& one) {
    const auto rank = static_cast<std::size_t>(context.rank());
    const bool is_root = context.rank() == one.root;
    std::size_t own_offset = 0;
    const auto whole = whole_of(one, rank, own_offset);
    const auto own = part_of(context.rank(), -1, one.counts[rank], one.type);
    std::byte* const in = is_root ? place.copy_of(whole) : nullptr;
    std::byte* const out = is_root && one.in_place ? in + own_offset : place.allocate(own.size());
    const Buffer from = is_root ? Buffer{in, whole.size() / size_of(one.type), one.type} : Buffer{};
    const Buffer to{out, one.counts[rank], one.type};
    ProcessGroup& world = context.world();
    (one.v ? world.scatter_v(from, to, one.counts, one.root) : world.scatter(from, to, one.root)).wait();
    std::string wrong = difference(out, own);
    if (wrong.empty() && is_root) wrong = difference(in, whole);
    return wrong.empty() ? "" : fmt::format("scatter: rank {}: {}\n", rank, wrong);
}

std::string run_all(const LocalWorld& world, Memory memory, const std::vector<std::size_t>& counts, DType type) {
    std::string all;
    for (const auto& complaint : run_ranks(world, [&](Context& context) {
             RankMemory place(context, memory);
             std::string wrong;
             for (const std::size_t count : counts) {
                 for (int root = 0; root<world.size(); root += count> 1000 ? 2 : 1) {  // the big ones take time
                     for (const bool in_place : {false, true}) {
                         const Counts even(static_cast<std::size_t>(world.size()), count);
                         const Case plain{even, type, root, false, in_place};
                         const Case uneven{uneven_counts(world.size(), count), type, root, true, in_place};
                         wrong += gather(context, place, plain) + scatter(context, place, plain);
                         wrong += scatter(context, place, uneven) + gather(context, place, uneven);
                     }
                 }
             }
             return wrong;
         })) {
        all += complaint;
    }
    return all;
}

}  // namespace

TEST_CASE("gather brings all parts to the root, scatter takes them back", "[native][unit]") {
    const auto shape = GENERATE(
        values<std::vector<int>>({{1}, {2}, {3}, {4}, {5}, {9}, {1, 1}, {2, 2}, {3, 1}, {1, 3, 2}, {1, 6}, {3, 3, 3}}));
    const auto memory = GENERATE(Memory::kArena, Memory::kForeign, Memory::kMixed);
    const LocalWorld world{.ranks_per_node = shape};
    CAPTURE(fmt::format("{}", fmt::join(shape, "+")), static_cast<int>(memory));
    const auto size = static_cast<std::size_t>(world.size());
    for (const DType type : {DType::i8, DType::bf16, DType::i64}) {
        CHECK(run_all(world, memory, {0, 1, size - 1, size, size + 1, 101}, type) == "");
    }
}

TEST_CASE("gather and scatter of counts that take several rounds", "[native][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{2}, {2, 1}, {1, 2}}));
    const auto memory = GENERATE(Memory::kArena, Memory::kForeign, Memory::kMixed);
    CAPTURE(fmt::format("{}", fmt::join(shape, "+")), static_cast<int>(memory));
    CHECK(run_all(LocalWorld{.ranks_per_node = shape}, memory, {300'001}, DType::f32) == "");
}
