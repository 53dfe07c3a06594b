// Clusters by seed. DDPRUN_SIM_SEEDS=10000 runs more of them, DDPRUN_SIM_FIRST=77 starts elsewhere (with
// DDPRUN_SIM_SEEDS=1: that one alone). A broken invariant is reported with its seed and the last lines of its trace.

#include <fmt/format.h>

#include <cstdlib>
#include <map>

#include "tests/catch.hpp"
#include "tests/sim/cluster.hpp"

using ddprun::sim::SimCluster;

namespace {

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

std::string last_lines(const std::vector<std::string>& trace) {
    constexpr std::size_t kLines = 120;
    std::string text;
    for (std::size_t i = trace.size() > kLines ? trace.size() - kLines : 0; i < trace.size(); ++i)
        text += trace[i] + "\n";
    return text;
}

}  // namespace

TEST_CASE("no seed breaks an invariant, and every run and every inquiry ends", "[coordinator][sim]") {
    const std::uint64_t first = from_environment("DDPRUN_SIM_FIRST", 1);
    const std::uint64_t count = from_environment("DDPRUN_SIM_SEEDS", 300);
    std::map<ddprun::protocol::Outcome, int> outcomes;
    int restarts = 0;
    int pauses = 0;
    int refusals = 0;
    int notified = 0;
    int freezes = 0;
    int stuck = 0;
    int orders = 0;
    int requests = 0;
    int answers = 0;
    int diagnoses = 0;
    int conclusions = 0;
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
        SimCluster cluster(seed);
        while (!cluster.settled()) cluster.step();
        if (!cluster.broken_invariant().empty()) {
            FAIL(fmt::format("seed {}: {}\n{}\n{}", seed, cluster.broken_invariant(), cluster.scenario(),
                             last_lines(cluster.trace())));
        }
        if (const auto& verdict = cluster.checker().verdict()) {
            ++outcomes[verdict->outcome];
            restarts += cluster.checker().groups() - 1;
        }
        pauses += cluster.checker().pauses();
        refusals += cluster.refusals();
        notified += cluster.notified();
        freezes += cluster.freezes();
        stuck += cluster.stuck();
        orders += cluster.orders();
        requests += cluster.inquiry_checker().requests();
        answers += cluster.inquiry_checker().answers();
        diagnoses += cluster.inquiry_checker().diagnoses();
        conclusions += cluster.inquiry_checker().conclusions();
    }
    // A simulation in which nothing happens proves nothing.
    if (count < 300) return;
    using ddprun::protocol::Outcome;
    for (const Outcome outcome :
         {Outcome::kSucceeded, Outcome::kWorkerFailed, Outcome::kStopped, Outcome::kInfrastructure}) {
        CAPTURE(static_cast<int>(outcome));
        CHECK(outcomes[outcome] > static_cast<int>(count) / 50);
    }
    CHECK(restarts > static_cast<int>(count) / 6);
    CHECK(pauses > static_cast<int>(count) / 100);
    CHECK(refusals > static_cast<int>(count) / 30);
    CHECK(freezes > static_cast<int>(count) / 4);
    CHECK(stuck > static_cast<int>(count) / 100);
    CHECK(orders > static_cast<int>(count) / 50);
    CHECK(notified > static_cast<int>(count) / 20);
    CHECK(requests > static_cast<int>(count));
    CHECK(answers > static_cast<int>(count) / 2);
    CHECK(diagnoses > static_cast<int>(count) / 4);
    CHECK(conclusions > static_cast<int>(count) / 10);
}

TEST_CASE("the same seed is the same run", "[coordinator][sim]") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        SimCluster one(seed);
        SimCluster two(seed);
        while (!one.settled()) one.step();
        while (!two.settled()) two.step();
        CAPTURE(seed);
        CHECK(one.trace_hash() == two.trace_hash());
        SimCluster other(seed + 1000);
        while (!other.settled()) other.step();
        CHECK(one.trace_hash() != other.trace_hash());
    }
}
