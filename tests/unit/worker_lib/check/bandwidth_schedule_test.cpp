#include "worker_lib/check/bandwidth_schedule.hpp"

#include <set>

#include "tests/catch.hpp"

using namespace ddp::check;

TEST_CASE("in each round a node has one partner, and after all rounds it has met every other one", "[check][unit]") {
    for (int nodes = 1; nodes <= 33; ++nodes) {
        std::set<std::pair<int, int>> met;
        for (int round = 0; round < complete_rounds(nodes); ++round) {
            for (int node = 0; node < nodes; ++node) {
                const auto partner = partner_of(node, nodes, round);
                CAPTURE(nodes, round, node);
                if (!partner) {
                    CHECK(nodes % 2 == 1);
                    continue;
                }
                CHECK(*partner != node);
                CHECK(partner_of(*partner, nodes, round) == node);
                met.insert({node, *partner});
            }
        }
        CHECK(met.size() == static_cast<std::size_t>(nodes) * static_cast<std::size_t>(nodes - 1));
    }
}

TEST_CASE("a large job plays some of the rounds, and all of them are different", "[check][unit]") {
    CHECK(rounds_of(1).empty());
    CHECK(rounds_of(2) == std::vector<int>{0});
    CHECK(rounds_of(kMaxCompleteNodes).size() == kMaxCompleteNodes - 1);
    for (const int nodes : {33, 34, 125, 1000}) {
        const auto rounds = rounds_of(nodes);
        CHECK(rounds.size() == kPartialRounds);
        CHECK(std::set<int>(rounds.begin(), rounds.end()).size() == rounds.size());
        CHECK(rounds.back() < complete_rounds(nodes));
        std::set<int> partners;
        for (const int round : rounds)
            if (const auto partner = partner_of(7, nodes, round)) partners.insert(*partner);
        CHECK(partners.size() >= rounds.size() - 1);
    }
}
