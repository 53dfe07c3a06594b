#include "worker_lib/src/native/backend/connect.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "common/text/number.hpp"
#include "worker_lib/src/bootstrap/environment.hpp"
#include "worker_lib/src/bootstrap/exchange.hpp"
#include "worker_lib/src/native/net/interfaces.hpp"
#include "worker_lib/src/native/net/sockets.hpp"
#include "worker_lib/src/native/net/sockets_per_peer.hpp"
#include "worker_lib/src/util/process_watch.hpp"

namespace ddp::detail {

namespace {

using ddprun::UniqueFd;

UniqueFd succeed(ddprun::Result<UniqueFd> result) {
    if (!result) throw Error(ErrorCode::System, result.error().message);
    return std::move(*result);
}

std::vector<int> without(std::vector<int> ranks, int rank) {
    std::erase(ranks, rank);
    return ranks;
}

std::vector<LocalRank> share_memory(const HandshakeSpec& place, const Topology& topology,
                                    const std::shared_ptr<Segment>& own, int listener) {
    auto met = meet_over_unix(place, listener, without(topology.local(), place.spec.rank), own->fd());
    std::vector<LocalRank> ranks;
    for (const int rank : topology.local()) {
        LocalRank local;
        local.rank = rank;
        local.global_rank = place.spec.members[static_cast<std::size_t>(rank)];
        local.name = name_of(rank, place.members[static_cast<std::size_t>(rank)]);
        if (rank == place.spec.rank) {
            local.segment = own;
        } else {
            const Connection& connection = met.at(rank);
            local.segment = Segment::attach(connection.passed);
            local.process = watch_process(connection.pid, local.name, rank);
        }
        ranks.push_back(std::move(local));
    }
    return ranks;
}

/// Throws Mismatch for different versions, which would not understand each other's messages.
void compare_versions(const GroupSpec& spec, const std::vector<Member>& members) {
    const auto& own = members[static_cast<std::size_t>(spec.rank)];
    for (std::size_t rank = 0; rank < members.size(); ++rank) {
        const Member& other = members[rank];
        if (other.version == own.version) continue;
        throw Error(
            ErrorCode::Mismatch,
            fmt::format("group '{}': {} is linked with version {} of ddp::ddp, {} with {}. Rebuild the trainers "
                        "of all nodes with one version",
                        spec.name, name_of(spec.rank, own), version_text(own.version),
                        name_of(static_cast<int>(rank), other), version_text(other.version)));
    }
}

/// Throws Mismatch for different settings, with which ranks would wait for messages, or connections, that never come.
void compare_settings(const GroupSpec& spec, const std::vector<Member>& members) {
    const auto& own = members[static_cast<std::size_t>(spec.rank)];
    const auto compare = [&](const char* variable, std::string Member::*setting) {
        for (std::size_t rank = 0; rank < members.size(); ++rank) {
            const Member& other = members[rank];
            if (other.*setting == own.*setting) continue;
            throw Error(ErrorCode::Mismatch,
                        fmt::format("group '{}': {} uses {} {}, {} uses {}. Set it alike on all nodes", spec.name,
                                    name_of(spec.rank, own), variable, own.*setting,
                                    name_of(static_cast<int>(rank), other), other.*setting));
        }
    };
    compare("DDPRUN_ALLREDUCE", &Member::all_reduce);
    compare("DDPRUN_SOCKETS_PER_PEER", &Member::sockets_per_peer);
}

/// Throws Mismatch if some ranks have a secret from ddprun and others have none: they would refuse each other.
void compare_authentication(const GroupSpec& spec, const std::vector<Member>& members) {
    const auto has_secret = [](const Member& member) { return member.authentication == Member::kSecret; };
    const auto having = std::ranges::find_if(members, has_secret);
    const auto lacking = std::ranges::find_if_not(members, has_secret);
    if (having == members.end() || lacking == members.end()) return;
    const auto name = [&](auto member) { return name_of(static_cast<int>(member - members.begin()), *member); };
    throw Error(ErrorCode::Mismatch,
                fmt::format("group '{}': {} has the secret of this job's workers from ddprun, {} does not. Start all "
                            "ranks with one version of ddprun on all nodes (`ddprun --version`), none by hand or "
                            "with torchrun, and none through a wrapper that closes descriptors or removes "
                            "DDPRUN_SECRET_FD",
                            spec.name, name(having), name(lacking)));
}

std::string published_address(const Store& store) {
    const auto wanted = process_variables()("DDPRUN_SOCKET_IFNAME");
    if (wanted) return choose_address(wanted, store.local_address(), interface_addresses());
    const auto of_node = process_variables()("DDPRUN_LOCAL_ADDR");  // ddprun --local-addr
    return of_node && !of_node->empty() ? *of_node : store.local_address();
}

/// Connects to `peers`, the counterparts of this rank on the other nodes.
std::map<int, Link> link(const HandshakeSpec& place, int listener, const std::vector<int>& peers, int Member::*port,
                         std::size_t sockets = 1) {
    std::map<int, Link> links;
    for (auto& [rank, connections] : meet_over_tcp(place, listener, peers, port, sockets)) {
        Link& made = links[rank];
        made.name = name_with_address(rank, place.members);
        made.global_rank = place.spec.members[static_cast<std::size_t>(rank)];
        made.socket = std::move(connections.front().socket);
        for (std::size_t i = 1; i < connections.size(); ++i) made.more.push_back(std::move(connections[i].socket));
    }
    return links;
}

}  // namespace

Connected connect_members(const GroupSpec& spec) {
    Connected result;
    // The ranks of this node meet only afterwards; without the variable the limit is a guess that may be too high.
    const std::string local_ranks = process_variables()("LOCAL_WORLD_SIZE").value_or("1");
    result.segment = Segment::create(ddprun::parse_number<std::size_t>(local_ranks).value_or(1));
    result.segment->control().allows_remote_fences = allow_remote_fences();
    result.rules = AllReduceRules::parse(process_variables()("DDPRUN_ALLREDUCE"));
    const auto sockets = SocketsPerPeer::parse(process_variables()("DDPRUN_SOCKETS_PER_PEER"));
    Member self = describe_self(spec);
    self.all_reduce = result.rules.text();
    self.sockets_per_peer = sockets.text();
    if (spec.members.size() == 1) {
        result.topology = make_topology({self}, 0);
        LocalRank alone;
        alone.segment = result.segment;
        alone.name = name_of(0, self);
        result.local.push_back(std::move(alone));
        result.members.push_back(std::move(self));
        return result;
    }

    // Listens before publishing: a rank that reads this record can connect.
    const UniqueFd local_listener = succeed(listen_unix(self.local_name));
    self.address = published_address(*spec.store);
    const UniqueFd listener = succeed(listen_tcp(self.address, self.port));
    const UniqueFd alarm_listener = succeed(listen_tcp(self.address, self.alarm_port));
    UniqueFd p2p_listener = succeed(listen_tcp(self.address, self.p2p_port));
    std::vector<Member> members;
    for (const std::string& text : exchange(spec, "member", encode(self))) {
        members.push_back(decode_member(text));
        members.back().global_rank = spec.members[members.size() - 1];
    }

    compare_versions(spec, members);
    compare_authentication(spec, members);
    compare_settings(spec, members);
    result.topology = make_topology(members, spec.rank);
    result.members = std::move(members);
    const HandshakeSpec place{
        .spec = spec, .members = result.members, .deadline = ddprun::Clock::now() + spec.init_timeout};
    result.local = share_memory(place, result.topology, result.segment, local_listener.get());
    result.key = GroupKey(spec, result.members);
    if (result.topology.nodes.size() > 1) result.p2p_listener = std::move(p2p_listener);
    if (!result.topology.own_carries()) return result;
    const std::vector<int> counterparts = result.topology.counterparts();
    const auto carriers = static_cast<std::size_t>(result.topology.carriers);
    result.links = link(place, listener.get(), counterparts, &Member::port,
                        sockets.choose(result.topology.nodes.size(), carriers));
    if (result.topology.own_index == 0) {
        result.leaders = link(place, alarm_listener.get(), counterparts, &Member::alarm_port);
    }
    return result;
}

}  // namespace ddp::detail
