#pragma once
// Runs all-reduces in a world and compares them with the slow reference, bit for bit.

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/unit/worker_lib/support/reduction_cases.hpp"
#include "tests/unit/worker_lib/support/settings.hpp"

namespace ddp::testing {

/// Runs all cases in one world, each rank at its own pace. Returns what was wrong on any rank; empty if nothing was.
inline std::string run_cases(const Setting& setting, const std::vector<Case>& cases) {
    std::vector<Inputs> inputs;  // by case
    for (const Case& one : cases) inputs.push_back(make_inputs(one, one.count, setting.world.ranks_per_node));
    return complaints(setting, [&](Context& context, RankMemory& place) -> std::string {
        for (std::size_t i = 0; i < cases.size(); ++i) {
            const Case& one = cases[i];
            const std::size_t bytes = one.count * size_of(one.type);
            const Bytes own = repeat(inputs[i].of_rank[static_cast<std::size_t>(context.rank())], bytes);
            std::byte* const data = place.copy_of(own);
            context.world().all_reduce({data, one.count, one.type}, one.op).wait();
            const auto where = first_difference(Bytes(data, data + bytes), repeat(inputs[i].reduced, bytes), one.type);
            if (where >= 0) return fmt::format("rank {}: {} differs at element {}", context.rank(), one.text(), where);
        }
        return {};
    });
}

}  // namespace ddp::testing
