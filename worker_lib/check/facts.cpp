#include "worker_lib/check/facts.hpp"

#include <boost/describe.hpp>
#include <boost/json.hpp>

namespace ddp::check {

// Boost.JSON converts described structs by the names of their members.
BOOST_DESCRIBE_STRUCT(NetworkInterface, (), (name, family, speed_mbit, mtu, physical))
BOOST_DESCRIBE_STRUCT(RdmaPort, (), (name, state, rate))
BOOST_DESCRIBE_STRUCT(GpuProcess, (), (pid, user, memory_bytes))
BOOST_DESCRIBE_STRUCT(Gpu, (), (name, memory_bytes, used_bytes, ecc_uncorrected, processes, index, uuid))
BOOST_DESCRIBE_STRUCT(VisibleGpus, (), (list))
BOOST_DESCRIBE_STRUCT(Limits, (), (open_files, locked_bytes, core_bytes, processes))
BOOST_DESCRIBE_STRUCT(ClockOffset, (), (seconds, error_seconds))
BOOST_DESCRIBE_STRUCT(Node, (),
                      (name, host, boot_id, first_rank, ranks, version, kernel, cpus, load, memory_bytes,
                       free_memory_bytes, shm_bytes, free_shm_bytes, limits, interfaces, rdma_ports, gpus, gpu_note,
                       unknown_gpu, driver, cuda, nccl, clock, gbytes_per_s))
BOOST_DESCRIBE_STRUCT(Link, (), (first, second, gbytes_per_s))
BOOST_DESCRIBE_STRUCT(WrongSums, (), (rank, node, integers, floats))
BOOST_DESCRIBE_STRUCT(AllReduce, (), (ranks, bytes, seconds, wrong))
BOOST_DESCRIBE_STRUCT(Cluster, (), (nodes, links, rounds, complete_rounds, all_reduce))
BOOST_DESCRIBE_STRUCT(Finding, (), (nodes, what, seen, expected, advice, table))
BOOST_DESCRIBE_STRUCT(RankResult, (), (links, wrong_integers, wrong_floats, all_reduce_seconds))

namespace {

constexpr int kJsonVersion = 1;

}  // namespace

std::string to_json(const Node& node) { return boost::json::serialize(boost::json::value_from(node)); }
std::string to_json(const VisibleGpus& visible) { return boost::json::serialize(boost::json::value_from(visible)); }
std::string to_json(const RankResult& result) { return boost::json::serialize(boost::json::value_from(result)); }

Node parse_node(std::string_view json) {
    return boost::json::value_to<Node>(boost::json::parse({json.data(), json.size()}));
}

VisibleGpus parse_visible_gpus(std::string_view json) {
    return boost::json::value_to<VisibleGpus>(boost::json::parse({json.data(), json.size()}));
}

RankResult parse_rank_result(std::string_view json) {
    return boost::json::value_to<RankResult>(boost::json::parse({json.data(), json.size()}));
}

std::string report_json(const Cluster& cluster, const std::vector<Finding>& findings) {
    boost::json::object report{{"version", kJsonVersion}, {"ok", findings.empty()}};
    report["findings"] = boost::json::value_from(findings);
    const boost::json::value facts = boost::json::value_from(cluster);
    for (const auto& [key, value] : facts.get_object()) report[key] = value;
    return boost::json::serialize(report) + "\n";
}

}  // namespace ddp::check
