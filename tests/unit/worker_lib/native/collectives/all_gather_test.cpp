// all_gather and all_gather_v.

#include <fmt/format.h>

#include <numeric>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/moved_bytes.hpp"
#include "tests/unit/worker_lib/support/settings.hpp"

using namespace ddp;
using namespace ddp::testing;

namespace {

/// Every rank gives counts[rank] elements. Returns what was wrong on this one.
std::string gather(Context& context, RankMemory& place, const Counts& counts, DType type, bool v, bool in_place) {
    const auto rank = static_cast<std::size_t>(context.rank());
    std::vector<std::byte> expected;
    std::size_t own_offset = 0;
    for (std::size_t source = 0; source < counts.size(); ++source) {
        if (source == rank) own_offset = expected.size();
        append(expected, part_of(static_cast<int>(source), -1, counts[source], type));
    }
    const auto own = part_of(context.rank(), -1, counts[rank], type);
    std::byte* const out = place.allocate(expected.size());
    if (rank % 3 == 1) place.change_sides();
    std::byte* const in = in_place ? out + own_offset : place.allocate(own.size());
    if (rank % 3 == 1) place.change_sides();
    std::copy(own.begin(), own.end(), in);
    const Buffer from{in, counts[rank], type};
    const Buffer to{out, expected.size() / size_of(type), type};
    (v ? context.world().all_gather_v(from, to, counts) : context.world().all_gather(from, to)).wait();
    std::string wrong = difference(out, expected);
    if (wrong.empty()) wrong = difference(in, own);
    return wrong.empty() ? "" : fmt::format("rank {}: {} of {} elements: {}\n", rank, wrong, counts[rank], v);
}

std::string gather_all(const Setting& setting, const std::vector<std::size_t>& counts,
                       const std::vector<DType>& types) {
    return complaints(setting, [&](Context& context, RankMemory& place) {
        std::string wrong;
        for (const std::size_t count : counts) {
            for (const DType type : types) {
                for (const bool in_place : {false, true}) {
                    wrong += gather(context, place, Counts(setting.size(), count), type, false, in_place);
                    wrong += gather(context, place, uneven_counts(context.world_size(), count), type, true, in_place);
                }
            }
        }
        return wrong;
    });
}

}  // namespace

TEST_CASE("all_gather gives every rank all parts", "[native][unit]") {
    const Setting setting = GENERATE(from_range(all_settings()));
    CAPTURE(setting.text());
    CHECK(gather_all(setting, awkward_counts(setting.size(), 1001), {DType::U8, DType::F16, DType::I32, DType::F64}) ==
          "");
}

TEST_CASE("all_gather of counts that take several rounds", "[native][unit]") {
    const Setting setting = GENERATE(from_range(long_settings({{3}, {1, 1, 1}, {2, 1}, {1, 2, 1}})));
    CAPTURE(setting.text());
    CHECK(gather_all(setting, {150'001}, {DType::F64}) == "");
}
