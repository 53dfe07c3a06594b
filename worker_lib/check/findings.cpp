#include "worker_lib/check/findings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "common/text/list.hpp"
#include "common/text/number.hpp"
#include "worker_lib/check/texts.hpp"

namespace ddp::check {
namespace {

using Nodes = std::vector<const Node*>;
using TextOf = std::function<std::string(const Node&)>;

Nodes select(const Cluster& cluster, const std::function<bool(const Node&)>& wanted) {
    Nodes nodes;
    for (const Node& node : cluster.nodes)
        if (wanted(node)) nodes.push_back(&node);
    return nodes;
}

std::string have(std::size_t nodes, std::string_view value) {
    return fmt::format("{} {} {}", nodes, ddprun::inflect(nodes, "node has", "nodes have"), value);
}

/// Adds a finding for each value that is not that of most nodes; if no value is, one finding with all values.
/// Precondition: `what` and `advice` are about `text_of`.
void compare(std::vector<Finding>& findings, const Nodes& nodes, const std::string& what, const TextOf& text_of,
             const std::string& advice) {
    std::map<std::string, std::vector<std::string>> by_value;
    for (const Node* node : nodes) by_value[text_of(*node)].push_back(node->name);
    if (by_value.size() < 2) return;
    const auto most = std::ranges::max_element(by_value, {}, [](const auto& entry) { return entry.second.size(); });
    if (most->second.size() * 2 > nodes.size()) {
        for (const auto& [value, names] : by_value)
            if (value != most->first)
                findings.push_back({names, what, value, have(most->second.size(), most->first), advice});
        return;
    }
    Finding finding{{}, what, "", "", advice};
    for (const auto& [value, names] : by_value) {
        finding.nodes.insert(finding.nodes.end(), names.begin(), names.end());
        finding.seen += fmt::format("{}{} on {}", finding.seen.empty() ? "" : ", ", value, node_ranges(names));
    }
    findings.push_back(std::move(finding));
}

/// Adds one finding for all nodes with the same text; nodes with an empty text have none.
void report(std::vector<Finding>& findings, const Cluster& cluster, const std::string& what, const TextOf& text_of,
            const std::string& expected, const std::string& advice) {
    std::map<std::string, std::vector<std::string>> by_value;
    for (const Node& node : cluster.nodes)
        if (std::string text = text_of(node); !text.empty()) by_value[std::move(text)].push_back(node.name);
    for (auto& [value, names] : by_value) findings.push_back({names, what, value, expected, advice});
}

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}

void check_sums(std::vector<Finding>& findings, const Cluster& cluster) {
    const AllReduce& all_reduce = cluster.all_reduce;
    if (all_reduce.wrong.empty()) return;
    if (std::cmp_equal(all_reduce.wrong.size(), all_reduce.ranks) && all_reduce.ranks > 1) {
        findings.push_back(
            {{},
             "sums of the all-reduce",
             "wrong on all ranks",
             "",
             "One rank sent wrong values: check half of the nodes, then the other half, until it is found."});
        return;
    }
    for (const WrongSums& wrong : all_reduce.wrong) {
        findings.push_back(
            {{cluster.nodes[static_cast<std::size_t>(wrong.node)].name},
             "sums of the all-reduce",
             fmt::format("{} wrong on rank {} ({} of integers, {} of floats)", wrong.integers + wrong.floats,
                         wrong.rank, wrong.integers, wrong.floats),
             fmt::format("{} are right",
                         ddprun::counted(static_cast<std::size_t>(all_reduce.ranks) - all_reduce.wrong.size(), "rank")),
             "Leave the node out, and test its memory and its network adapter."});
    }
}

void check_gpu(std::vector<Finding>& findings, const Node& node, const Gpu& gpu) {
    if (gpu.ecc_uncorrected.value_or(0) > 0) {
        findings.push_back({{node.name},
                            fmt::format("GPU {}", gpu.index),
                            ddprun::counted(*gpu.ecc_uncorrected, "uncorrected ECC error"),
                            "",
                            "Reset the GPU (nvidia-smi -r), and replace it if the errors come back."});
    }
    for (const GpuProcess& process : gpu.processes) {
        findings.push_back({{node.name},
                            fmt::format("GPU {}", gpu.index),
                            fmt::format("process {} of {} uses {}", process.pid,
                                        process.user.empty() ? "another container" : process.user,
                                        process.memory_bytes ? bytes_text(*process.memory_bytes) : "it"),
                            "",
                            "End it, or leave the GPU out (--gpus)."});
    }
    if (gpu.processes.empty() && gpu.used_bytes > kMaxIdleGpuBytes) {
        findings.push_back({{node.name},
                            fmt::format("GPU {}", gpu.index),
                            fmt::format("{} in use by processes that are not visible here", bytes_text(gpu.used_bytes)),
                            "",
                            "Look for them on the host, outside of this container."});
    }
}

void check_gpus(std::vector<Finding>& findings, const Cluster& cluster) {
    const Nodes all = select(cluster, [](const Node&) { return true; });
    report(
        findings, cluster, "GPUs", [](const Node& node) { return node.gpu_note == kDriverHangs ? node.gpu_note : ""; },
        "", "Restart the node: dmesg shows whether a GPU has fallen off the bus.");
    report(
        findings, cluster, "CUDA_VISIBLE_DEVICES",
        [](const Node& node) {
            return node.unknown_gpu.empty()
                       ? ""
                       : fmt::format("no GPU is '{}': CUDA uses none that the list names after it", node.unknown_gpu);
        },
        "", "Correct the list, or let ddprun make it (--gpus).");
    if (std::ranges::any_of(cluster.nodes, [](const Node& node) { return !node.gpus.empty(); })) {
        const auto text_of = [](const Node& node) {
            const bool explained = node.gpus.empty() && !node.gpu_note.empty();
            return gpus_text(node.gpus) + (explained ? fmt::format(" ({})", node.gpu_note) : "");
        };
        compare(findings, select(cluster, [](const Node& node) { return node.gpu_note != kDriverHangs; }), "GPUs",
                text_of, "Leave the node out, or repair it: dmesg and nvidia-smi show more.");
    }
    for (const Node& node : cluster.nodes)
        for (const Gpu& gpu : node.gpus) check_gpu(findings, node, gpu);
    compare(findings, select(cluster, [](const Node& node) { return node.driver.has_value(); }), "NVIDIA driver",
            driver_text, "Install the same driver on all nodes.");
    compare(
        findings, all, "NCCL", [](const Node& node) { return node.nccl.value_or("none"); },
        "Install the same libnccl.so.2 on all nodes: the ranks of one communicator need one version.");
}

void check_links(std::vector<Finding>& findings, const Cluster& cluster) {
    const Nodes compared = comparable_nodes(cluster);
    if (compared.empty()) return;
    std::vector<double> medians;
    for (const Node* node : compared) medians.push_back(*node->gbytes_per_s);
    const double usual = median(medians);
    for (const Node* node : compared) {
        if (*node->gbytes_per_s >= kSlowNodePart * usual) continue;
        findings.push_back({{node->name},
                            "bandwidth",
                            fmt::format("{:.3g} GB/s", *node->gbytes_per_s),
                            fmt::format("half of the nodes have {:.3g} GB/s or more", usual),
                            "Check its cable, its switch port, and `ethtool` or `ibstat` on it."});
    }
}

void check_clocks(std::vector<Finding>& findings, const Cluster& cluster) {
    std::vector<double> offsets;
    for (const Node& node : cluster.nodes)
        if (node.clock) offsets.push_back(node.clock->seconds);
    if (offsets.empty()) return;
    const double usual = median(offsets);  // that of rank 0's node, from which they are measured, may be the odd one
    for (const Node& node : cluster.nodes) {
        if (!node.clock) continue;
        const double skew = node.clock->seconds - usual;
        if (std::abs(skew) - node.clock->error_seconds <= kMaxClockSkewSeconds) continue;
        findings.push_back({{node.name},
                            "clock",
                            fmt::format("{:.1f} s {} most nodes", std::abs(skew), skew > 0 ? "ahead of" : "behind"),
                            "",
                            "Start its time service: chronyc or timedatectl shows the state."});
    }
}

void check_versions(std::vector<Finding>& findings, const Cluster& cluster) {
    compare(
        findings, select(cluster, [](const Node&) { return true; }), "ddprun",
        [](const Node& node) { return node.version; }, "Install the same version on all nodes.");
}

void check_interfaces(std::vector<Finding>& findings, const Cluster& cluster) {
    std::set<std::string> names;
    for (const Node& node : cluster.nodes)
        for (const NetworkInterface& interface : node.interfaces) names.insert(interface.name);
    for (const std::string& name : names) {
        const auto found = [&](const Node& node) {
            return std::ranges::find(node.interfaces, name, &NetworkInterface::name);
        };
        const Nodes with = select(cluster, [&](const Node& node) { return found(node) != node.interfaces.end(); });
        if (with.size() * 2 <= cluster.nodes.size()) continue;  // names of most nodes only: bridges have any name
        const bool physical = std::ranges::all_of(with, [&](const Node* node) { return found(*node)->physical; });
        for (const Node& node : cluster.nodes) {
            if (!physical || found(node) != node.interfaces.end()) continue;
            findings.push_back({{node.name},
                                fmt::format("interface {}", name),
                                "absent, down or without an address",
                                have(with.size(), "it"),
                                fmt::format("`ip addr show {}` on it shows which.", name)});
        }
        const auto has_speed = [&](const Node& node) {
            return found(node) != node.interfaces.end() && found(node)->speed_mbit.has_value();
        };
        compare(
            findings, select(cluster, has_speed), fmt::format("speed of {}", name),
            [&](const Node& node) { return speed_text(*found(node)->speed_mbit); },
            "Check cable and switch port: `ethtool` shows what was negotiated.");
        const auto has_mtu = [&](const Node& node) {
            return found(node) != node.interfaces.end() && found(node)->mtu > 0;
        };
        compare(
            findings, select(cluster, has_mtu), fmt::format("MTU of {}", name),
            [&](const Node& node) { return std::to_string(found(node)->mtu); },
            "Set the same MTU on all nodes: large messages get lost otherwise.");
    }
    compare(
        findings, select(cluster, [](const Node&) { return true; }), "RDMA ports",
        [](const Node& node) { return rdma_text(node.rdma_ports); }, "Check cables and ports: `ibstat` shows more.");
}

void check_limits(std::vector<Finding>& findings, const Cluster& cluster) {
    const std::int64_t needed = std::min(kMaxNeededOpenFiles, kOpenFilesPerRank * cluster.all_reduce.ranks);
    const auto too_few = [&](const Node& node) { return node.limits.open_files && *node.limits.open_files < needed; };
    report(
        findings, cluster, "open files (ulimit -n)",
        [&](const Node& node) { return too_few(node) ? limit_text(node.limits.open_files) : ""; },
        fmt::format("this job needs {}", needed),
        "Raise nofile in /etc/security/limits.conf, or LimitNOFILE= of the service.");
    compare(
        findings, select(cluster, [&](const Node& node) { return !too_few(node); }), "open files (ulimit -n)",
        [](const Node& node) { return limit_text(node.limits.open_files); }, "Set the same limit on all nodes.");
    const auto too_little_locked = [](const Node& node) {
        return !node.rdma_ports.empty() && node.limits.locked_bytes.has_value();
    };
    const auto locked_text = [](const Node& node) {
        return node.limits.locked_bytes ? bytes_text(*node.limits.locked_bytes) : std::string("unlimited");
    };
    report(
        findings, cluster, "locked memory (ulimit -l)",
        [&](const Node& node) { return too_little_locked(node) ? locked_text(node) : ""; }, "RDMA needs unlimited",
        "Raise memlock in /etc/security/limits.conf, or LimitMEMLOCK= of the service.");
    compare(findings, select(cluster, [&](const Node& node) { return !too_little_locked(node); }),
            "locked memory (ulimit -l)", locked_text, "Set the same limit on all nodes.");
    report(
        findings, cluster, "free space in /dev/shm",
        [](const Node& node) { return node.free_shm_bytes < kNeededShmBytes ? bytes_text(node.free_shm_bytes) : ""; },
        fmt::format("workers need {}", bytes_text(kNeededShmBytes)),
        "Remove old files there, or give the container more (--shm-size, an emptyDir of medium Memory).");
}

}  // namespace

void set_medians(Cluster& cluster) {
    for (std::size_t i = 0; i < cluster.nodes.size(); ++i) {
        std::vector<double> values;
        for (const Link& link : cluster.links)
            if (std::cmp_equal(link.first, i) || std::cmp_equal(link.second, i)) values.push_back(link.gbytes_per_s);
        if (!values.empty()) cluster.nodes[i].gbytes_per_s = median(std::move(values));
    }
}

std::vector<const Node*> comparable_nodes(const Cluster& cluster) {
    std::map<std::string, int> nodes_of_machine;
    for (const Node& node : cluster.nodes) ++nodes_of_machine[node.boot_id];
    Nodes nodes = select(cluster, [&](const Node& node) {
        const bool own_machine = node.boot_id.empty() || nodes_of_machine[node.boot_id] == 1;
        return own_machine && node.gbytes_per_s.has_value();
    });
    if (nodes.size() < 3) nodes.clear();
    return nodes;
}

std::vector<Finding> find_problems(const Cluster& cluster) {
    std::vector<Finding> findings;
    const auto check = [&](const char* table, void (*rule)(std::vector<Finding>&, const Cluster&)) {
        const std::size_t before = findings.size();
        rule(findings, cluster);
        for (std::size_t i = before; i < findings.size(); ++i) findings[i].table = table;
    };
    check("sums", check_sums);
    check("gpus", check_gpus);
    check("network", check_links);
    check("network", check_clocks);
    check("hosts", check_versions);
    check("network", check_interfaces);
    check("limits", check_limits);
    return findings;
}

}  // namespace ddp::check
