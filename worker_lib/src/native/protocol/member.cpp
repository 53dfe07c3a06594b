#include "worker_lib/src/native/protocol/member.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "common/ids.hpp"
#include "worker_lib/src/bootstrap/environment.hpp"

namespace ddp::detail {

std::string own_version() { return fmt::format("ddp/{}/{}", DDPRUN_VERSION, kProtocolVersion); }

std::string version_text(std::string_view version) {
    constexpr std::string_view kHead = "ddp/";
    const auto protocol = version.rfind('/');
    if (!version.starts_with(kHead) || protocol < kHead.size())
        return "an older version, which does not publish its number";
    return fmt::format("{} (protocol {})", version.substr(kHead.size(), protocol - kHead.size()),
                       version.substr(protocol + 1));
}

std::string encode(const Member& member) {
    return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {}", member.version, member.hostname, member.pid,
                       member.node, member.token, member.authentication, member.local_name, member.address, member.port,
                       member.alarm_port, member.p2p_port, member.all_reduce, member.sockets_per_peer);
}

Member decode_member(std::string_view text) {
    std::istringstream words{std::string(text)};
    Member member;
    words >> member.version >> member.hostname >> member.pid;
    if (!words.fail() && member.version != own_version()) return member;
    words >> member.node >> member.token >> member.authentication >> member.local_name >> member.address >>
        member.port >> member.alarm_port >> member.p2p_port >> member.all_reduce >> member.sockets_per_peer;
    if (words.fail())
        throw Error(ErrorCode::System, fmt::format("a peer published '{}', which is not a member record", text));
    return member;
}

std::string location_text(const Member& member) { return fmt::format("host {}, pid {}", member.hostname, member.pid); }

std::string name_of(int rank, const Member& member) {
    return name_rank(rank, member.global_rank, location_text(member));
}

std::string name_with_address(int rank, const std::vector<Member>& members) {
    const Member& member = members[static_cast<std::size_t>(rank)];
    return name_rank(rank, member.global_rank, fmt::format("{}, {}", location_text(member), member.address));
}

Member describe_self(const GroupSpec& spec) {
    Member member;
    member.node = machine_of(spec);
    member.hostname = hostname();
    member.pid = static_cast<int>(::getpid());
    member.global_rank = spec.members[static_cast<std::size_t>(spec.rank)];
    member.token = ddprun::random_id();
    if (!spec.secret.empty()) member.authentication = Member::kSecret;
    member.local_name = "ddp-" + ddprun::random_id();
    return member;
}

std::vector<int> Topology::counterparts() const {
    std::vector<int> ranks;
    for (int node = 0; node < static_cast<int>(nodes.size()); ++node) {
        if (node != own_node) ranks.push_back(counterpart(node));
    }
    return ranks;
}

int Topology::node_of(int rank) const {
    const auto holds = [rank](const std::vector<int>& node) { return std::ranges::find(node, rank) != node.end(); };
    return static_cast<int>(std::ranges::find_if(nodes, holds) - nodes.begin());
}

int Topology::ranks() const {
    std::size_t total = 0;
    for (const auto& node : nodes) total += node.size();
    return static_cast<int>(total);
}

Topology make_topology(const std::vector<Member>& members, int own_rank) {
    Topology topology;
    std::vector<std::string_view> names;  // of the nodes, in the order of their first appearance
    for (std::size_t rank = 0; rank < members.size(); ++rank) {
        const auto found = std::ranges::find(names, members[rank].node);
        const auto node = static_cast<std::size_t>(found - names.begin());
        if (found == names.end()) {
            names.push_back(members[rank].node);
            topology.nodes.emplace_back();
        }
        if (static_cast<int>(rank) == own_rank) {
            topology.own_node = static_cast<int>(node);
            topology.own_index = static_cast<int>(topology.nodes[node].size());
        }
        topology.nodes[node].push_back(static_cast<int>(rank));
    }
    const auto smallest = std::ranges::min_element(topology.nodes, {}, &std::vector<int>::size);
    topology.carriers = smallest == topology.nodes.end() ? 0 : static_cast<int>(smallest->size());
    return topology;
}

}  // namespace ddp::detail
