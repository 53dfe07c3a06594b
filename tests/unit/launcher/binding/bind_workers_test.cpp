// Which CPUs each worker gets, on machines of many shapes.

#include "launcher/binding/bind_workers.hpp"

#include <numeric>

#include "tests/catch.hpp"
#include "tests/unit/launcher/binding/synthetic.hpp"

using namespace ddprun;
using namespace ddprun::launcher;

namespace {

using Sets = std::vector<CpuSet>;

std::vector<agent::WorkerBinding> bind(NumaBinding binding, const Topology& topology, const Sets& near) {
    return bind_workers(binding, topology, near).value();
}

Sets cpus_of(const std::vector<agent::WorkerBinding>& bindings) {
    Sets sets;
    for (const auto& bound : bindings) sets.push_back(cpus_in(bound.cpus));
    return sets;
}

Sets without_gpus(int workers) { return Sets(static_cast<std::size_t>(workers)); }

/// 2 sockets of 4 NUMA nodes of 2 core complexes of 4 cores with 2 threads: 128 CPUs.
Topology big() { return synthetic("package:2 numa:4 l3:2 core:4 pu:2"); }

CpuSet node(int index) { return cpus(index * 16, index * 16 + 15); }

}  // namespace

TEST_CASE("with node a worker gets the NUMA node of its GPU", "[launcher][unit]") {
    // As on machines where the GPUs hang on every second node, in another order than the nodes.
    const Sets near{node(3), node(3), node(1), node(1), node(7), node(7), node(5), node(5)};
    const auto bindings = bind(NumaBinding::kNode, big(), near);
    CHECK(cpus_of(bindings) == near);
    CHECK(bindings[0].numa_nodes == std::set<int>{3});
    CHECK(bindings[0].threads == 8);  // two workers share 16 CPUs
}

TEST_CASE("with socket a worker gets the package of its GPU, with all its NUMA nodes", "[launcher][unit]") {
    const auto bindings = bind(NumaBinding::kSocket, big(), {node(6), node(1), node(5)});
    CHECK(cpus_of(bindings) == Sets{cpus(64, 127), cpus(0, 63), cpus(64, 127)});
    CHECK(bindings[0].numa_nodes == std::set<int>{4, 5, 6, 7});
    CHECK(bindings[0].threads == 32);
    CHECK(bindings[1].threads == 64);
}

TEST_CASE("with exclusive the workers of a NUMA node divide its cores, and the first get those that are left",
          "[launcher][unit]") {
    const auto bindings = bind(NumaBinding::kExclusive, big(), {node(1), node(1), node(0), node(1)});
    CHECK(cpus_of(bindings) == Sets{cpus(16, 21), cpus(22, 27), node(0), cpus(28, 31)});
    CHECK(bindings[0].threads == 6);
    CHECK(bindings[2].threads == 16);
}

TEST_CASE("with core-complex the workers of a NUMA node get one of its caches each, in turn", "[launcher][unit]") {
    const auto bindings = bind(NumaBinding::kCoreComplex, big(), {node(2), node(2), node(2), node(0)});
    CHECK(cpus_of(bindings) == Sets{cpus(32, 39), cpus(40, 47), cpus(32, 39), cpus(0, 7)});
    CHECK(bindings[0].threads == 4);
    CHECK(bindings[1].threads == 8);
}

TEST_CASE("without GPUs the workers are spread over the machine in blocks", "[launcher][unit]") {
    using B = NumaBinding;
    CHECK(cpus_of(bind(B::kNode, big(), without_gpus(2))) == Sets{node(0), node(4)});
    CHECK(cpus_of(bind(B::kNode, big(), without_gpus(4))) == Sets{node(0), node(2), node(4), node(6)});
    CHECK(cpus_of(bind(B::kSocket, big(), without_gpus(4))) ==
          Sets{cpus(0, 63), cpus(0, 63), cpus(64, 127), cpus(64, 127)});
    const auto sixteen = cpus_of(bind(B::kNode, big(), without_gpus(16)));
    for (int worker = 0; worker < 16; ++worker) CHECK(sixteen[static_cast<std::size_t>(worker)] == node(worker / 2));
    CHECK(cpus_of(bind(B::kCoreComplex, big(), without_gpus(16)))[15] == cpus(120, 127));
}

TEST_CASE("every core goes to one worker with exclusive, whatever their number", "[launcher][unit]") {
    const int workers = GENERATE(range(1, 65));
    const auto bindings = bind(NumaBinding::kExclusive, big(), without_gpus(workers));
    CpuSet seen;
    std::size_t sum = 0;
    for (const auto& bound : bindings) {
        const CpuSet cpus = cpus_in(bound.cpus);
        CHECK(cpus.size() % 2 == 0);  // whole cores
        CHECK(bound.numa_nodes.size() == 1);
        CHECK(bound.threads == static_cast<int>(cpus.size()));
        sum += cpus.size();
        seen.insert(cpus.begin(), cpus.end());
    }
    CAPTURE(workers);
    CHECK(seen.size() == sum);
    if (workers >= 8) CHECK(sum == 128);
}

TEST_CASE("a NUMA node with fewer cores than exclusive workers is refused", "[launcher][unit]") {
    const auto refused = bind_workers(NumaBinding::kExclusive, big(), Sets(9, node(2)));
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code == Errc::kUsage);
    CHECK(refused.error().message ==
          "--numa-binding exclusive: NUMA node 2 has 8 cores for 9 workers, and each needs one of its own. Start fewer "
          "workers (--nproc-per-node), or pass --numa-binding node.");
    CHECK_FALSE(bind_workers(NumaBinding::kExclusive, big(), without_gpus(65)).has_value());
}

TEST_CASE("CPUs that are not allowed are not used", "[launcher][unit]") {
    const CpuSet allowed{16, 17, 18, 20, 100};
    const Topology topology = restricted_to(allowed, big());
    SECTION("a GPU whose NUMA node is not allowed takes any other") {
        CHECK(cpus_of(bind(NumaBinding::kNode, topology, {node(7)})) == Sets{{16, 17, 18, 20}});
    }
    SECTION("workers are spread in proportion to the cores that are left") {  // 3 and 1
        CHECK(cpus_of(bind(NumaBinding::kNode, topology, without_gpus(4))) ==
              Sets{{16, 17, 18, 20}, {16, 17, 18, 20}, {16, 17, 18, 20}, {100}});
    }
    SECTION("part of a core counts as a core") {
        CHECK(cpus_of(bind(NumaBinding::kExclusive, topology, without_gpus(4))) == Sets{{16, 17}, {18}, {20}, {100}});
    }
    SECTION("no binding of any kind leaves the mask") {
        const auto binding =
            GENERATE(NumaBinding::kNode, NumaBinding::kSocket, NumaBinding::kExclusive, NumaBinding::kCoreComplex);
        for (const CpuSet& bound : cpus_of(bind(binding, topology, {node(0), {}, node(6)}))) {
            CHECK_FALSE(bound.empty());
            CHECK(common_cpus(bound, allowed) == bound);
        }
    }
}

TEST_CASE("a GPU that is near several NUMA nodes takes one of them", "[launcher][unit]") {
    const auto bindings = bind(NumaBinding::kNode, big(), {cpus(64, 127), cpus(64, 127), node(1)});
    CHECK(cpus_of(bindings) == Sets{node(4), node(6), node(1)});
}

TEST_CASE("a package whose last cache spans its NUMA nodes has one core complex in each", "[launcher][unit]") {
    Topology topology = synthetic("package:1 numa:2 core:4 pu:1");
    topology.core_complexes = {cpus(0, 7)};
    CHECK(cpus_of(bind(NumaBinding::kCoreComplex, topology, without_gpus(2))) == Sets{cpus(0, 3), cpus(4, 7)});
}

TEST_CASE("core-complex takes whole ones first, and the NUMA node where no cache is known", "[launcher][unit]") {
    const Topology topology = restricted_to(cpus(3, 11), synthetic("numa:1 l3:3 core:4 pu:1"));
    CHECK(cpus_of(bind(NumaBinding::kCoreComplex, topology, without_gpus(3))) ==
          Sets{cpus(4, 7), cpus(8, 11), cpus(3, 3)});
    CHECK(cpus_of(bind(NumaBinding::kCoreComplex, synthetic("numa:2 pu:2"), without_gpus(2))) ==
          Sets{cpus(0, 1), cpus(2, 3)});
}

TEST_CASE("threads of a core with numbers far apart stay together", "[launcher][unit]") {
    const Topology topology = synthetic("package:2 core:2 pu:2(indexes=0,4,1,5,2,6,3,7)");
    CHECK(cpus_of(bind(NumaBinding::kExclusive, topology, without_gpus(4))) == Sets{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
}

TEST_CASE("workers that share CPUs share the threads, at least one each", "[launcher][unit]") {
    const Topology topology = synthetic("numa:1 core:4 pu:1");
    CHECK(bind(NumaBinding::kNode, topology, without_gpus(3))[0].threads == 1);  // of 4 CPUs
    CHECK(bind(NumaBinding::kNode, topology, without_gpus(2))[0].threads == 2);
    CHECK(bind(NumaBinding::kNode, topology, without_gpus(64))[0].threads == 1);
}

TEST_CASE("workers that may run anywhere avoid the NUMA nodes that others fill", "[launcher][unit]") {
    const Topology small = synthetic("numa:2 core:2 pu:1");
    const CpuSet first = cpus(0, 1);
    CHECK(cpus_of(bind(NumaBinding::kNode, small, {first, first, {}, {}})) ==
          Sets{first, first, cpus(2, 3), cpus(2, 3)});
    CHECK(cpus_of(bind(NumaBinding::kExclusive, small, {{}, {}, first, first})) == Sets{{2}, {3}, {0}, {1}});
}
