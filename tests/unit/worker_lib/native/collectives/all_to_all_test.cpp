// all_to_all and all_to_all_v.

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/moved_bytes.hpp"
#include "tests/unit/worker_lib/support/settings.hpp"

using namespace ddp;
using namespace ddp::testing;

namespace {

/// What rank `source` has for rank `destination`: the same for all pairs, or uneven with many zeros.
std::size_t count_of(int source, int destination, std::size_t scale, bool v) {
    if (!v) return scale;
    const int pattern = (source * 5 + destination * 3) % 4;
    return pattern == 0 ? 0 : scale * static_cast<std::size_t>(pattern) / 2 + static_cast<std::size_t>(source);
}

std::string exchange(Context& context, RankMemory& place, std::size_t scale, DType type, bool v) {
    const int rank = context.rank();
    Counts sends;
    Counts receives;
    std::vector<std::byte> given;
    std::vector<std::byte> expected;
    for (int other = 0; other < context.world_size(); ++other) {
        sends.push_back(count_of(rank, other, scale, v));
        receives.push_back(count_of(other, rank, scale, v));
        append(given, part_of(rank, other, sends.back(), type));
        append(expected, part_of(other, rank, receives.back(), type));
    }
    std::byte* const in = place.copy_of(given);
    std::byte* const out = place.allocate(expected.size());
    const Buffer from{in, given.size() / size_of(type), type};
    const Buffer to{out, expected.size() / size_of(type), type};
    (v ? context.world().all_to_all_v(from, sends, to, receives) : context.world().all_to_all(from, to)).wait();
    std::string wrong = difference(out, expected);
    if (wrong.empty()) wrong = difference(in, given);
    return wrong.empty() ? "" : fmt::format("rank {}, {} elements, v {}: {}\n", rank, scale, v, wrong);
}

std::string exchange_all(const Setting& setting, const std::vector<std::size_t>& counts,
                         const std::vector<DType>& types) {
    return complaints(setting, [&](Context& context, RankMemory& place) {
        std::string wrong;
        for (const std::size_t count : counts) {
            for (const DType type : types) {
                for (const bool v : {false, true}) wrong += exchange(context, place, count, type, v);
            }
        }
        return wrong;
    });
}

}  // namespace

TEST_CASE("all_to_all gives each rank its part of every input", "[native][unit]") {
    const Setting setting = GENERATE(from_range(all_settings()));
    CAPTURE(setting.text());
    CHECK(exchange_all(setting, awkward_counts(setting.size(), 501), {DType::U8, DType::F16, DType::U32, DType::F64}) ==
          "");
}

TEST_CASE("all_to_all of counts that take several rounds", "[native][unit]") {
    const Setting setting = GENERATE(from_range(long_settings({{2}, {1, 1, 1}, {2, 1}, {2, 2}, {1, 2, 1}})));
    CAPTURE(setting.text());
    CHECK(exchange_all(setting, {150'001}, {DType::F64}) == "");
}
