#include "rendezvous/daemon/report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "common/endpoint.hpp"
#include "common/text/escape.hpp"
#include "common/text/list.hpp"
#include "common/text/number.hpp"

namespace ddprun::daemon {

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
        const int slots = slots_of(join);
        const std::string ranks =
            fmt::format("{} {}", inflect(slots, "rank", "ranks"), range_of(first, first + slots - 1));
        const int rank = number(member->second.assignment.node_rank);
        lines.push_back(log_line(fmt::format("  node {}  {}  {}", rank, join.host, ranks)));
    }
    return lines;
}

std::string exposure_warning(const boost::asio::ip::tcp::endpoint& endpoint, const boost::asio::ip::address& store,
                             bool insecure, bool members_only) {
    const bool only_stores = endpoint.address().is_loopback();
    if (!only_stores && insecure) {
        return fmt::format(
            "INSECURE: {} can be reached from other hosts, and --insecure turns off authentication and encryption: "
            "every host that reaches it can join the job and read and change its store. Use a network that you "
            "trust, or leave out --insecure on all nodes.",
            to_string(Endpoint{endpoint.address().to_string(), endpoint.port()}));
    }
    if (store.is_loopback() || members_only) return {};
    return fmt::format(
        "INSECURE: the stores at {} can be reached from other hosts, and are open to every process that reaches them, "
        "because PyTorch's TCPStore has no authentication. Use a network that you trust{}.",
        store.to_string(),
        endpoint.address().is_unspecified() ? ", or bind one address"
                                            : ", or leave out --local-addr (ddprun) or --store-address (ddprund)");
}

}  // namespace ddprun::daemon
