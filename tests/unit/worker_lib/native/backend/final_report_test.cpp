// A rank whose process ends right after an operation that it has done: its contribution has been made, so all others
// complete that operation, too, on its node and on others, and fail in a later one.
//
// DDP_FAULT_ROUNDS=100 does that as often, also in scenes that are left out otherwise, and prints how often all did:
//
//     DDP_FAULT_ROUNDS=100 unit_native_processes "what a rank has done*" -c "rank 1 of nodes of 2 2"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/fault_rounds.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "tests/unit/worker_lib/support/processes.hpp"
#include "tests/unit/worker_lib/support/repeated.hpp"

using namespace ddp;
using namespace ddp::testing;

namespace {

const std::vector<std::string> kCollectives{"all_reduce",     "small all_reduce", "barrier",      "broadcast",
                                            "reduce",         "reduce_scatter",   "all_gather_v", "gather_v",
                                            "large gather_v", "scatter_v",        "all_to_all_v"};

struct LeavingRank {
    std::vector<int> shape;
    int victim = 0;
    bool always = false;  ///< not only in many rounds
};

/// Rank 1 or 3 of {2, 2} leaves a neighbour behind that fails in the next operation, and reports that to the other
/// node at once.
const std::vector<LeavingRank> kLeavingRanks{{{2, 2}, 1, true}, {{2, 2}, 3, true}, {{3}, 1, true}, {{2, 2}, 0},
                                             {{2, 2}, 2},       {{3}, 0},          {{1, 1}, 0},    {{1, 1}, 1},
                                             {{1, 1, 1}, 0},    {{1, 1, 1}, 1},    {{2, 2, 2}, 3}, {{1, 3}, 3}};

/// Does `most` operations and ends at once if it is the victim; else returns how many it has done until one failed.
std::string operate_until_it_fails(Context& context, const std::string& what, int victim, int most) {
    Repeated repeated(context.world(), what);
    int done = 0;
    try {
        for (;; ++done) {
            if (context.rank() == victim && done == most) ::_exit(0);
            repeated.start().wait();
        }
    } catch (const Error& error) {
        return fmt::format("{} of '{}': {}", done, what, error.what());
    }
}

/// The errors of ranks that have done fewer operations than the victim, or do not name it.
std::string wrong_words(const LocalWorld& world, const std::string& what, int victim, int most) {
    Processes processes(world, [&](Context& context) { return operate_until_it_fails(context, what, victim, most); });
    std::string wrong;
    for (int rank = 0; rank < world.size(); ++rank) {
        if (rank == victim) continue;
        const std::string words = processes.words(static_cast<std::size_t>(rank));
        int done = -1;
        std::istringstream(words) >> done;
        if (done < most || words.find(fmt::format("rank {} (host", victim)) == std::string::npos)
            wrong += fmt::format("rank {}, of {} to be done: {}\n", rank, most, words);
    }
    return wrong;
}

}  // namespace

TEST_CASE("what a rank has done before its process ends is done by all others", "[faults][unit]") {
    const int rounds = std::max(4, fault_rounds());  // before this was so, one of three broadcasts failed
    for (const auto& [shape, victim, always] : kLeavingRanks) {
        if (!always && fault_rounds() == 1) continue;
        const std::string name = fmt::format("rank {} of nodes of {}", victim, fmt::join(shape, " "));
        DYNAMIC_SECTION(name) {
            const LocalWorld world{.ranks_per_node = shape};
            int right = 0;
            for (const std::string& what : kCollectives) {
                for (int round = 0; round < rounds; ++round) {
                    const std::string wrong = wrong_words(world, what, victim, 3 + round % 3);
                    CHECK(wrong == "");
                    right += wrong.empty() ? 1 : 0;
                }
            }
            if (fault_rounds() == 1) continue;
            std::printf("%s: %d of %d right\n", name.c_str(), right, rounds * static_cast<int>(kCollectives.size()));
            std::fflush(stdout);
        }
    }
}
