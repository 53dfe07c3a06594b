// gather, scatter and their forms with counts: every root, in place and apart.

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/moved_bytes.hpp"
#include "tests/unit/worker_lib/support/settings.hpp"

using namespace ddp;
using namespace ddp::testing;

namespace {

struct Case {
    Counts counts;
    DType type = DType::F32;
    int root = 0;
    bool v = false;
    bool in_place = false;
};

/// All parts, and where a rank's begins.
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

std::string run_all(const Setting& setting, const std::vector<std::size_t>& counts, DType type) {
    return complaints(setting, [&](Context& context, RankMemory& place) {
        const int size = context.world_size();
        std::string wrong;
        for (const std::size_t count : counts) {
            const int step = count > 1000 || !kThorough ? 2 : 1;  // the big ones take time
            for (int root = 0; root < size; root += step) {
                for (const bool in_place : {false, true}) {
                    const Case plain{Counts(setting.size(), count), type, root, false, in_place};
                    const Case uneven{uneven_counts(size, count), type, root, true, in_place};
                    wrong += gather(context, place, plain) + scatter(context, place, plain);
                    wrong += scatter(context, place, uneven) + gather(context, place, uneven);
                }
            }
        }
        return wrong;
    });
}

}  // namespace

TEST_CASE("gather brings all parts to the root, scatter takes them back", "[native][unit]") {
    const Setting setting = GENERATE(from_range(all_settings()));
    CAPTURE(setting.text());
    for (const DType type : {DType::I8, DType::BF16, DType::I64}) {
        CHECK(run_all(setting, awkward_counts(setting.size(), 101), type) == "");
    }
}

TEST_CASE("gather and scatter of counts that take several rounds", "[native][unit]") {
    const Setting setting = GENERATE(from_range(long_settings({{2}, {1, 1, 1}, {2, 1}, {1, 2}})));
    CAPTURE(setting.text());
    CHECK(run_all(setting, {300'001}, DType::F32) == "");
}
