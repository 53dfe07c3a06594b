#include "rendezvous/daemon/report.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace ddprun::daemon {

std::string printable(std::string_view text) {
    std::string line;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (line.size() >= kMaxLogLine) return line + " …";
        const auto byte = static_cast<unsigned char>(text[i]);
        const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0u;
        if (byte == 0xc2 && next >= 0x80 && next < 0xa0) {  // U+0080 … U+009F; some terminals obey them
            line += fmt::format("\\x{:02x}", next);
            ++i;
        } else if (byte < 0x20 || byte == 0x7f) {
            line += fmt::format("\\x{:02x}", byte);
        } else {
            line += text[i];
        }
    }
    return line;
}

std::vector<std::string> group_table(const coordinator::State& state) {
    std::vector<const std::pair<const coordinator::NodeId, coordinator::Member>*> members;
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
        const coordinator::Join& join = node->second.join;
        const int first = member->second.assignment.rank_base;
        const std::string ranks =
            join.slots == 1 ? fmt::format("rank {}", first) : fmt::format("ranks {}-{}", first, first + join.slots - 1);
        const int rank = number(member->second.assignment.node_rank);
        lines.push_back(printable(fmt::format("  node {}  {}  {}", rank, join.host, ranks)));
    }
    return lines;
}

}  // namespace ddprun::daemon
