// What hwloc shows of a machine, as sets of CPUs.

#include "launcher/binding/topology.hpp"

#include <sched.h>

#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/launcher/binding/synthetic.hpp"

using namespace ddprun;
using namespace ddprun::launcher;

TEST_CASE("hwloc's levels become sets of CPUs", "[launcher][unit]") {
    const Topology topology = synthetic("package:2 numa:2 l3:2 core:2 pu:2");
    CHECK_FALSE(topology.is_this_machine);
    REQUIRE(topology.numa_nodes.size() == 4);
    CHECK(topology.numa_nodes[3].index == 3);
    CHECK(topology.numa_nodes[3].cpus == cpus(24, 31));
    CHECK(topology.packages == std::vector{cpus(0, 15), cpus(16, 31)});
    REQUIRE(topology.core_complexes.size() == 8);
    CHECK(topology.core_complexes[7] == cpus(28, 31));
    REQUIRE(topology.cores.size() == 16);
    CHECK(topology.cores[15] == cpus(30, 31));
}

TEST_CASE("memory without CPUs of its own is no NUMA node to bind to", "[launcher][unit]") {
    const Topology topology =
        synthetic("[numa] package:2 [numa] [numa] core:2 pu:1");  // of the machine: CXL; twins: HBM
    REQUIRE(topology.numa_nodes.size() == 2);
    CHECK(topology.numa_nodes[0].cpus == cpus(0, 1));
    CHECK(topology.numa_nodes[1].cpus == cpus(2, 3));
}

TEST_CASE("a machine whose packages, caches or cores are not shown is one package of single CPUs", "[launcher][unit]") {
    const Topology topology = synthetic("numa:2 pu:2");
    CHECK(topology.packages == std::vector{cpus(0, 3)});
    CHECK(topology.core_complexes.empty());
    CHECK(topology.cores == std::vector{cpus(0, 0), cpus(1, 1), cpus(2, 2), cpus(3, 3)});
}

TEST_CASE("the last cache is that of the highest level", "[launcher][unit]") {
    CHECK(synthetic("l2:2 core:2 pu:1").core_complexes == std::vector{cpus(0, 1), cpus(2, 3)});
    CHECK(synthetic("l3:1 l2:2 core:2 pu:1").core_complexes == std::vector{cpus(0, 3)});
}

TEST_CASE("a restricted topology has the allowed CPUs and the parts with some", "[launcher][unit]") {
    const Topology topology = restricted_to({1, 2, 3, 12}, synthetic("package:2 numa:2 l3:2 core:2 pu:1"));
    REQUIRE(topology.numa_nodes.size() == 2);
    CHECK(topology.numa_nodes[0].cpus == cpus(1, 3));
    CHECK(topology.numa_nodes[1].index == 3);
    CHECK(topology.packages == std::vector{cpus(1, 3), cpus(12, 12)});
    CHECK(topology.core_complexes == std::vector{cpus(1, 1), cpus(2, 3), cpus(12, 12)});
    CHECK(topology.cores.size() == 4);
}

TEST_CASE("this machine's topology has the CPUs of the affinity mask", "[launcher][unit]") {
    const auto topology = load_topology();
    REQUIRE(topology.has_value());
    CHECK(topology->is_this_machine);
    CpuSet in_nodes;
    for (const auto& node : topology->numa_nodes) in_nodes.insert(node.cpus.begin(), node.cpus.end());
    const CpuSet allowed = allowed_cpu_set();
    CHECK(common_cpus(in_nodes, allowed) == allowed);
    CHECK(std::getenv("HWLOC_PLUGINS_PATH") == nullptr);  // workers would inherit it
}

TEST_CASE("a topology that hwloc cannot read is an error with what to do", "[launcher][unit]") {
    ::setenv("HWLOC_XMLFILE", "/no/such.xml", 1);
    ::setenv("HWLOC_COMPONENTS", "xml,stop", 1);  // else hwloc would look at this machine instead
    const auto topology = load_topology();
    ::unsetenv("HWLOC_XMLFILE");
    ::unsetenv("HWLOC_COMPONENTS");
    REQUIRE_FALSE(topology.has_value());
    CHECK_THAT(topology.error().message, Catch::StartsWith("hwloc cannot read the topology of this machine: ") &&
                                             Catch::Contains("If HWLOC_XMLFILE"));
}

TEST_CASE("a description of another machine that hwloc ignores is an error", "[launcher][unit]") {
    const auto [name, value] = GENERATE(
        table<const char*, const char*>({{"HWLOC_XMLFILE", "/no/such.xml"}, {"HWLOC_SYNTHETIC", "no such:machine"}}));
    ::setenv(name, value, 1);
    const auto topology = load_topology();
    ::unsetenv(name);
    REQUIRE_FALSE(topology.has_value());
    CHECK(topology.error().code == Errc::kUsage);
    CHECK_THAT(topology.error().message, Catch::Contains(std::string("hwloc cannot read ") + name + "=" + value));
}

TEST_CASE("a CPU that hwloc shows without a core is a core of its own", "[launcher][unit]") {
    const TemporaryDirectory folder;
    folder.file("node.xml", R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x00000007" complete_cpuset="0x00000007" allowed_cpuset="0x00000007" nodeset="0x00000001" complete_nodeset="0x00000001" allowed_nodeset="0x00000001" gp_index="1">
    <object type="NUMANode" os_index="0" cpuset="0x00000007" complete_cpuset="0x00000007" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="5">
    </object>
    <object type="Core" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="4">
      <object type="PU" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="2"/>
      <object type="PU" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="3"/>
    </object>
    <object type="PU" os_index="2" cpuset="0x00000004" complete_cpuset="0x00000004" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="6"/>
  </object>
</topology>
)",
                0600);
    ::setenv("HWLOC_XMLFILE", (folder.path() / "node.xml").c_str(), 1);
    const auto topology = load_topology();
    ::unsetenv("HWLOC_XMLFILE");
    REQUIRE(topology.has_value());
    CHECK(topology->cores == std::vector{cpus(0, 1), cpus(2, 2)});
}

TEST_CASE("CPUs of a NUMA node whose memory is denied are not lost", "[launcher][unit]") {
    const TemporaryDirectory folder;
    folder.file("node.xml", R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x0000000f" complete_cpuset="0x0000000f" allowed_cpuset="0x0000000f" nodeset="0x00000003" complete_nodeset="0x00000003" allowed_nodeset="0x00000001" gp_index="1">
    <object type="Core" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="4">
      <object type="NUMANode" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="5">
      </object>
      <object type="PU" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="2"/>
      <object type="PU" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="3"/>
    </object>
    <object type="Core" os_index="1" cpuset="0x0000000c" complete_cpuset="0x0000000c" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="8">
      <object type="NUMANode" os_index="1" cpuset="0x0000000c" complete_cpuset="0x0000000c" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="9">
      </object>
      <object type="PU" os_index="2" cpuset="0x00000004" complete_cpuset="0x00000004" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="6"/>
      <object type="PU" os_index="3" cpuset="0x00000008" complete_cpuset="0x00000008" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="7"/>
    </object>
  </object>
</topology>
)",
                0600);
    ::setenv("HWLOC_XMLFILE", (folder.path() / "node.xml").c_str(), 1);
    const auto topology = load_topology();
    ::unsetenv("HWLOC_XMLFILE");
    REQUIRE(topology.has_value());
    REQUIRE(topology->numa_nodes.size() == 2);
    CHECK(topology->numa_nodes[1].cpus == cpus(2, 3));
}
