// WritePlan: for any cut of a state, the ranks together write each byte once, and receive exactly what is sent to them.

#include "worker_lib/src/checkpoint/write_plan.hpp"

#include <algorithm>
#include <random>
#include <vector>

#include "tests/catch.hpp"
#include "worker_lib/src/checkpoint/state.hpp"

using namespace ddp;
using namespace ddp::detail;
using ddprun::checkpoint::kBlockBytes;

namespace {

/// A state of some tensors, and the ranges that the ranks have of them.
struct Cut {
    std::vector<NamedShard> state;
    std::vector<OwnedRange> ranges;
};

/// Cuts each tensor at random places. Some of the parts belong to several ranks, others to all.
Cut cut(std::mt19937& random, int ranks) {
    Cut made;
    const auto below = [&](std::size_t end) { return random() % end; };
    for (std::uint64_t i = 0; i < 1 + below(6); ++i) {
        const std::size_t count = below(3) == 0 ? below(100) : below(3 * kBlockBytes);
        made.state.push_back({std::to_string(i), {count}, 0, {nullptr, 0, below(2) == 0 ? DType::U8 : DType::F32}});
        const std::size_t element = size_of(made.state.back().part.dtype);
        if (below(4) == 0) {
            made.ranges.push_back({i, 0, count * element, OwnedRange::kEveryRank});
            continue;
        }
        std::vector<std::size_t> cuts{0, count};
        for (int r = 1; r < ranks; ++r) cuts.push_back(below(count + 1));
        std::ranges::sort(cuts);
        for (int r = 0; r < ranks; ++r) {
            const auto at = static_cast<std::size_t>(r);
            // Overlaps the next part now and then.
            const std::size_t end = below(3) == 0 && at + 2 < cuts.size() ? cuts[at + 2] : cuts[at + 1];
            made.ranges.push_back({i, cuts[at] * element, end * element, r});
        }
    }
    std::ranges::shuffle(made.ranges, random);
    return made;
}

bool has(const Cut& made, int rank, std::size_t tensor, std::size_t begin, std::size_t end) {
    return std::ranges::any_of(made.ranges, [&](const OwnedRange& range) {
        return range.tensor == tensor && (range.rank == rank || range.rank == OwnedRange::kEveryRank) &&
               range.begin <= begin && end <= range.end;
    });
}

}  // namespace

TEST_CASE("each byte is written once, by a rank that can, from bytes that some rank has", "[checkpoint]") {
    const auto seed = GENERATE(take(100, random(0u, 0xffffffffu)));
    CAPTURE(seed);
    std::mt19937 random(seed);
    const int ranks = 1 + static_cast<int>(random() % 5);
    const Cut made = cut(random, ranks);
    std::vector<bool> can_write{true};
    for (int r = 1; r < ranks; ++r) can_write.push_back(random() % 4 != 0);
    const FileOrder order = order_of(made.state);
    REQUIRE(uncovered(made.state, made.ranges) == "");

    std::vector<WritePlan> plans;
    for (int r = 0; r < ranks; ++r)
        plans.push_back(plan_writes(order.tensors, order.in_state, made.ranges, r, can_write));
    std::vector<Run> all;
    for (int r = 0; r < ranks; ++r) {
        const auto at = static_cast<std::size_t>(r);
        const WritePlan& plan = plans[at];
        CHECK(plan.writers == plans[0].writers);
        CHECK((can_write[at] || plan.writes.empty()));
        std::size_t received = 0;
        for (const Run& run : plan.writes) {
            all.push_back(run);
            received += run.tensor == Run::kReceived ? run.bytes : 0;
            if (run.tensor != Run::kReceived) CHECK(has(made, r, run.tensor, run.offset, run.offset + run.bytes));
            for (std::size_t block = run.position / kBlockBytes; block * kBlockBytes < run.position + run.bytes;
                 ++block)
                CHECK(plan.writers[block] == r);
        }
        std::size_t sent = 0;
        for (const Run& run : plan.sends) {
            sent += run.bytes;
            CHECK(has(made, r, run.tensor, run.offset, run.offset + run.bytes));
        }
        std::size_t to_send = 0;
        std::size_t to_receive = 0;
        for (std::size_t peer = 0; peer < plans.size(); ++peer) {
            to_send += plan.send_bytes[peer];
            to_receive += plan.receive_bytes[peer];
            CHECK(plan.send_bytes[peer] == plans[peer].receive_bytes[at]);
        }
        CHECK(sent == to_send);
        CHECK(received == to_receive);
        CHECK((sent == 0 || plan.exchanges));
    }
    std::ranges::sort(all, {}, &Run::position);
    std::size_t next = 0;
    bool once = true;
    for (const Run& run : all) {
        once = once && run.position == next;
        next = run.position + run.bytes;
    }
    CHECK(once);
    CHECK(next == (order.tensors.empty() ? 0 : order.tensors.back().end()));
}

TEST_CASE("blocks that all ranks have are dealt to them evenly", "[checkpoint]") {
    const std::vector<NamedShard> state{{"a", {8 * kBlockBytes}, 0, {nullptr, 0, DType::U8}}};
    const std::vector<OwnedRange> ranges{{0, 0, 8 * kBlockBytes}};
    const FileOrder order = order_of(state);
    const auto writers = [&](const std::vector<bool>& can_write) {
        return plan_writes(order.tensors, order.in_state, ranges, 0, can_write).writers;
    };
    CHECK(writers({true, true, true, true}) == std::vector{0, 0, 1, 1, 2, 2, 3, 3});
    CHECK(writers({true, false, true}) == std::vector{0, 0, 0, 0, 2, 2, 2, 2});
}

TEST_CASE("blocks of a rank that cannot write are dealt to all that can", "[checkpoint]") {
    const std::vector<NamedShard> state{{"a", {8 * kBlockBytes}, 0, {nullptr, 0, DType::U8}}};
    const std::vector<OwnedRange> ranges{{0, 0, 8 * kBlockBytes, 2}};
    const FileOrder order = order_of(state);
    const WritePlan plan = plan_writes(order.tensors, order.in_state, ranges, 2, {true, true, false});
    CHECK(plan.writers == std::vector{0, 0, 0, 0, 1, 1, 1, 1});
    CHECK(plan.send_bytes == std::vector{4 * kBlockBytes, 4 * kBlockBytes, std::size_t{0}});
}
