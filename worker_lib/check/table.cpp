#include "worker_lib/check/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "common/text/cut.hpp"
#include "common/text/number.hpp"
#include "worker_lib/check/findings.hpp"
#include "worker_lib/check/texts.hpp"

namespace ddp::check {
namespace {

constexpr std::size_t kMaxNodeColumns = 24;

/// A column of a table. Nodes share a row if the texts of all columns are equal; numbers are shown as a range.
struct Column {
    std::string head;
    std::function<std::string(const Node&)> text;                ///< empty: a column of numbers
    std::function<std::optional<double>(const Node&)> number{};  ///< absent: "-"
    std::function<std::string(double)> number_text{};
    bool flexible = false;  ///< gets the columns of the line that others leave
};

Column text_column(std::string head, std::function<std::string(const Node&)> text, bool flexible = false) {
    return {.head = std::move(head), .text = std::move(text), .flexible = flexible};
}

Column number_column(std::string head, std::function<std::optional<double>(const Node&)> number,
                     std::function<std::string(double)> text) {
    return {.head = std::move(head), .text = {}, .number = std::move(number), .number_text = std::move(text)};
}

/// Returns "3" or "3-5": the range of a column's numbers.
std::string range_text(const Column& column, const std::vector<const Node*>& nodes) {
    std::optional<double> least;
    std::optional<double> most;
    for (const Node* node : nodes) {
        const auto value = column.number(*node);
        if (!value) continue;
        least = std::min(least.value_or(*value), *value);
        most = std::max(most.value_or(*value), *value);
    }
    if (!least) return "-";
    const std::string low = column.number_text(*least);
    const std::string high = column.number_text(*most);
    return low == high ? low : fmt::format("{} to {}", low, high);
}

std::string format_line(const std::vector<std::string>& cells, const std::vector<std::size_t>& widths) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) {
        line += "  ";
        line += fmt::format("{:<{}}", ddprun::cut(cells[i], widths[i]), widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    return line + "\n";
}

/// The nodes of a table, and for each a text of its findings that are about this table: they decide about its row, too.
struct Rows {
    const std::vector<Node>& nodes;
    std::vector<std::string> marks;
};

Rows rows_of(const Cluster& cluster, const std::vector<Finding>& findings, std::string_view table) {
    Rows rows{cluster.nodes, std::vector<std::string>(cluster.nodes.size())};
    for (std::size_t number = 0; number < findings.size(); ++number) {
        if (findings[number].table != table) continue;
        const std::set<std::string> named(findings[number].nodes.begin(), findings[number].nodes.end());
        for (std::size_t i = 0; i < rows.marks.size(); ++i)
            if (named.contains(cluster.nodes[i].name)) rows.marks[i] += fmt::format("{},", number);
    }
    return rows;
}

std::string format_table(const Rows& all, const std::vector<Column>& columns) {
    std::vector<std::pair<std::vector<std::string>, std::vector<const Node*>>> groups;  // in the order of first nodes
    for (std::size_t i = 0; i < all.nodes.size(); ++i) {
        const Node& node = all.nodes[i];
        std::vector<std::string> key{all.marks[i]};
        for (const Column& column : columns) key.push_back(column.text ? column.text(node) : "");
        const auto same = std::ranges::find_if(groups, [&](const auto& group) { return group.first == key; });
        if (same == groups.end())
            groups.push_back({std::move(key), {&node}});
        else
            same->second.push_back(&node);
    }
    std::vector<std::vector<std::string>> rows(1, {"node"});
    for (const Column& column : columns) rows[0].push_back(column.head);
    for (const auto& [key, members] : groups) {
        std::vector<std::string> names;
        for (const Node* node : members) names.push_back(node->name);
        rows.push_back({short_node_ranges(names, kMaxNodeColumns)});
        for (std::size_t i = 0; i < columns.size(); ++i)
            rows.back().push_back(columns[i].text ? key[i + 1] : range_text(columns[i], members));
    }
    std::vector<std::size_t> widths(columns.size() + 1);
    std::size_t line = 0;
    for (std::size_t i = 0; i < widths.size(); ++i) {
        for (const auto& row : rows) widths[i] = std::max(widths[i], row[i].size());
        line += widths[i] + 2;
    }
    for (std::size_t i = 0; i < columns.size() && line > kMaxColumns; ++i) {
        if (!columns[i].flexible) continue;
        const std::size_t less = std::min(line - kMaxColumns, widths[i + 1] - std::min<std::size_t>(widths[i + 1], 16));
        widths[i + 1] -= less;
        line -= less;
    }
    std::string text;
    for (const auto& row : rows) text += format_line(row, widths);
    return text;
}

std::string number(double value) { return fmt::format("{:.3g}", value); }
std::string bytes(double value) { return bytes_text(static_cast<std::int64_t>(value)); }

std::string one_decimal(double value) { return fmt::format("{:.1f}", value); }

std::string milliseconds(double seconds) {
    const double value = std::round(seconds * 1e5) / 100 + 0.0;  // not "-0.00"
    return std::abs(value) < 1000 ? fmt::format("{:+.2f} ms", value) : fmt::format("{:+.1f} s", seconds);
}

std::string hosts_table(const Rows& rows) {
    return format_table(
        rows,
        {text_column("ranks", [](const Node& node) { return std::to_string(node.ranks); }),
         text_column(
             "kernel", [](const Node& node) { return node.kernel; }, true),
         text_column("CPUs", [](const Node& node) { return number(node.cpus); }),
         number_column(
             "load", [](const Node& node) { return node.load; }, one_decimal),
         text_column("memory", [](const Node& node) { return bytes_text(node.memory_bytes); }),
         number_column(
             "free memory", [](const Node& node) { return static_cast<double>(node.free_memory_bytes); }, bytes)});
}

std::string limits_table(const Rows& rows) {
    const auto bytes_limit = [](const std::optional<std::int64_t>& limit) {
        return limit ? bytes_text(*limit) : std::string("unlimited");
    };
    return format_table(
        rows, {text_column("nofile", [](const Node& node) { return limit_text(node.limits.open_files); }),
               text_column("nproc", [](const Node& node) { return limit_text(node.limits.processes); }),
               text_column("memlock", [&](const Node& node) { return bytes_limit(node.limits.locked_bytes); }),
               text_column("core", [&](const Node& node) { return bytes_limit(node.limits.core_bytes); }),
               text_column("/dev/shm", [](const Node& node) { return bytes_text(node.shm_bytes); }),
               number_column(
                   "free in it", [](const Node& node) { return static_cast<double>(node.free_shm_bytes); }, bytes)});
}

std::string interfaces_text(const Node& node) {
    std::string text;
    for (const NetworkInterface& interface : node.interfaces) {
        text += fmt::format("{}{} {}{} MTU {}", text.empty() ? "" : ", ", interface.name,
                            interface.speed_mbit ? speed_text(*interface.speed_mbit) + " " : "", interface.family,
                            interface.mtu);
    }
    return text.empty() ? "none" : text;
}

std::string network_table(const Rows& rows) {
    return format_table(
        rows,
        {text_column("interfaces", interfaces_text, true),
         text_column(
             "RDMA ports", [](const Node& node) { return rdma_text(node.rdma_ports); }, true),
         number_column(
             "clock", [](const Node& node) { return node.clock ? std::optional(node.clock->seconds) : std::nullopt; },
             milliseconds),
         number_column(
             "GB/s", [](const Node& node) { return node.gbytes_per_s; }, number)});
}

std::string gpu_table(const Cluster& cluster, const Rows& rows) {
    const auto nccl = [](const Node& node) { return node.nccl.value_or("none"); };
    const auto is_plain = [&](const Node& node) {
        return node.gpus.empty() && !node.driver && nccl(node) == nccl(cluster.nodes.front());
    };
    if (std::ranges::all_of(cluster.nodes, is_plain)) {
        return fmt::format("  no GPUs on {} ({}); NCCL: {}\n", cluster.nodes.size() == 1 ? "this node" : "any node",
                           cluster.nodes.front().gpu_note, nccl(cluster.nodes.front()));
    }
    const auto sum = [](auto part) {
        return [part](const Node& node) -> std::optional<double> {
            double total = 0;
            for (const Gpu& gpu : node.gpus) total += static_cast<double>(part(gpu));
            return node.gpus.empty() ? std::nullopt : std::optional(total);
        };
    };
    std::map<std::string, std::vector<std::string>> by_note;
    for (const Node& node : cluster.nodes)
        if (!node.gpu_note.empty()) by_note[node.gpu_note].push_back(node.name);
    std::string notes;
    for (const auto& [note, names] : by_note)
        notes +=
            ddprun::cut(fmt::format("  {}: {}", short_node_ranges(names, kMaxNodeColumns), note), kMaxColumns) + "\n";
    return format_table(
               rows, {text_column(
                          "GPUs", [](const Node& node) { return gpus_text(node.gpus); }, true),
                      number_column("in use", sum([](const Gpu& gpu) { return gpu.used_bytes; }), bytes),
                      number_column("processes", sum([](const Gpu& gpu) { return gpu.processes.size(); }), number),
                      number_column("ECC", sum([](const Gpu& gpu) { return gpu.ecc_uncorrected.value_or(0); }), number),
                      text_column("driver", driver_text),
                      text_column("NCCL", [](const Node& node) { return node.nccl.value_or("none"); })}) +
           notes;
}

/// Returns the line about nodes whose bandwidths are not compared; empty: all are.
std::string compared_line(const Cluster& cluster) {
    const std::size_t compared = comparable_nodes(cluster).size();
    const auto measured =
        std::ranges::count_if(cluster.nodes, [](const Node& node) { return node.gbytes_per_s.has_value(); });
    if (std::cmp_equal(compared, measured)) return "";
    if (compared == 0) return "bandwidths were not compared: fewer than 3 nodes have a machine of their own\n";
    return fmt::format("bandwidths of {} were compared: the other nodes share machines\n",
                       ddprun::counted(compared, "node"));
}

std::string links_line(const Cluster& cluster) {
    if (cluster.links.empty()) return "";
    const auto slowest = std::ranges::min_element(cluster.links, {}, &Link::gbytes_per_s);
    const auto name = [&](int index) { return cluster.nodes[static_cast<std::size_t>(index)].name; };
    const std::string rounds = cluster.rounds == cluster.complete_rounds
                                   ? std::string("all")
                                   : fmt::format("{} of {} rounds of all", cluster.rounds, cluster.complete_rounds);
    return fmt::format(
        "pairs of nodes: {} ({}), both ways at once over TCP; the slowest is {} - {}, {} GB/s each way\n{}",
        cluster.links.size(), rounds, name(slowest->first), name(slowest->second), number(slowest->gbytes_per_s),
        compared_line(cluster));
}

std::string all_reduce_line(const Cluster& cluster) {
    const AllReduce& sums = cluster.all_reduce;
    if (sums.ranks == 1) return "all-reduce: one rank, nothing to sum\n";
    const double bus_bytes = 2.0 * (sums.ranks - 1) / sums.ranks * static_cast<double>(sums.bytes);
    return fmt::format(
        "all-reduce of integers and floats over {} ranks on CPUs: {}, {} GB/s (busbw, {})\n", sums.ranks,
        sums.wrong.empty() ? "all sums are right" : ddprun::counted(sums.wrong.size(), "rank") + " with wrong sums",
        number(bus_bytes / std::max(sums.seconds, 1e-9) / 1e9), bytes_text(sums.bytes));
}

}  // namespace

std::string table_of(const Cluster& cluster, const std::vector<Finding>& findings) {
    const auto rows = [&](std::string_view table) { return rows_of(cluster, findings, table); };
    const std::size_t nodes = cluster.nodes.size();
    return fmt::format("{}, {}, ddprun {}\n\nHosts\n{}\nLimits\n{}\nNetwork\n{}\nGPUs\n{}\n{}{}",
                       ddprun::counted(nodes, "node"), ddprun::counted(cluster.all_reduce.ranks, "rank"),
                       cluster.nodes.front().version, hosts_table(rows("hosts")), limits_table(rows("limits")),
                       network_table(rows("network")), gpu_table(cluster, rows("gpus")), links_line(cluster),
                       all_reduce_line(cluster));
}

std::string finding_line(const Finding& finding) {
    return fmt::format("{}: {}: {}{}{}. {}", finding.nodes.empty() ? "all nodes" : node_ranges(finding.nodes),
                       finding.what, finding.seen, finding.expected.empty() ? "" : "; ", finding.expected,
                       finding.advice);
}

std::string verdict_of(const Cluster& cluster, const std::vector<Finding>& findings) {
    const std::size_t nodes = cluster.nodes.size();
    if (findings.empty())
        return nodes == 1 ? "\nnothing was found on this node\n" : fmt::format("\nall {} nodes agree\n", nodes);
    std::string text = fmt::format("\n{}:\n", ddprun::counted(findings.size(), "finding"));
    for (const Finding& finding : findings) text += "  " + finding_line(finding) + "\n";
    return text;
}

}  // namespace ddp::check
