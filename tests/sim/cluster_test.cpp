// Clusters by seed, as many as a sanitizer has time for. The program sim_seeds runs any number of them.

#include "tests/catch.hpp"
#include "tests/sim/tally.hpp"

using namespace ddprun::sim;

TEST_CASE("no seed breaks an invariant, and every run and every inquiry ends", "[coordinator][sim]") {
    Tally tally;
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        SimCluster cluster(seed);
        cluster.run_to_end();
        REQUIRE(finding(seed, cluster, 60) == "");
        tally.add(cluster);
    }
    CHECK(tally.too_seldom() == "");
}

TEST_CASE("no seed breaks an invariant that once did", "[coordinator][sim]") {
    // With the generator of that time, a message that the network held back made an innocent worker the culprit.
    const std::uint64_t seed = GENERATE(1030492u, 2028021u, 2048258u, 2085771u, 2222467u);
    SimCluster cluster(seed);
    cluster.run_to_end();
    CHECK(finding(seed, cluster, 60) == "");
}

TEST_CASE("no seed of a rare order of faults breaks an invariant", "[coordinator][sim]") {
    // A guard killed while its agent dials; workers that never end; a notification lost in a cut towards one node; a
    // member that left after its success before another one was lost; three that died after theirs; three connections
    // that ended on the daemon's side alone, before the Welcome came; the last node of two lost while a store opened.
    const std::uint64_t seed =
        GENERATE(121954u, 188555u, 152966u, 258367u, 392408u, 447495u, 472550u, 339600u, 400330u, 2000821u, 760215u);
    SimCluster cluster(seed);
    cluster.run_to_end();
    CHECK(finding(seed, cluster, 60) == "");
}

TEST_CASE("the same seed is the same run", "[coordinator][sim]") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        SimCluster one(seed);
        SimCluster two(seed);
        one.run_to_end();
        two.run_to_end();
        CAPTURE(seed);
        CHECK(one.trace_hash() == two.trace_hash());
        SimCluster other(seed + 1000);
        other.run_to_end();
        CHECK(one.trace_hash() != other.trace_hash());
    }
}
