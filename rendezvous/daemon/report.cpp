#include "rendezvous/daemon/report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "common/text/escape.hpp"

namespace ddprun::daemon {

std::string printable(std::string_view text) {
    std::string line = escape_controls(text.substr(0, kMaxLogLine));
    if (line.size() <= kMaxLogLine && text.size() <= kMaxLogLine) return line;
    line.resize(std::min(line.size(), kMaxLogLine));
    return line + " …";
}

std::vector<std::string> group_table(const coordinator::State& state) {
    std::vector<const std::pair<const protocol::NodeId, coordinator::Member>*> members;
    for (const auto& member : state.group.members) members.push_back(&member);
    std::ranges::sort(members, {}, [](const auto* member) { return number(member->second.assignment.node_rank); });

    std::vector<std::string> lines;
    for (const auto* member : members) {
        if (lines.size() == kMaxTableNodes) {
            lines.push_back(fmt::format("  and {} more nodes", members.size() - lines.size()));
            break;
        }
        const auto node = state.nodes.find(member->first);
        if (node == state.nodes.end()) continue;  // lost since
        const protocol::Join& join = node->second.join;
        const int first = member->second.assignment.rank_base;
        const std::string ranks =
            join.slots == 1 ? fmt::format("rank {}", first) : fmt::format("ranks {}-{}", first, first + join.slots - 1);
        const int rank = number(member->second.assignment.node_rank);
        lines.push_back(printable(fmt::format("  node {}  {}  {}", rank, join.host, ranks)));
    }
    return lines;
}

}  // namespace ddprun::daemon
