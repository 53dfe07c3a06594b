#include "rendezvous/daemon/store_clients.hpp"

#include <algorithm>
#include <utility>

namespace ddprun::daemon {
namespace {

/// The number of addresses of forgotten nodes that may be kept.
constexpr std::size_t kMaxForgottenOrigins = 64;

}  // namespace

bool may_be_outdated(const coordinator::State& job, const Origins& origins, const std::string& address) {
    const auto is_from_there = [&](const protocol::NodeId& node) {
        const auto origin = origins.find(node);
        return origin != origins.end() && origin->second == address;
    };
    const bool has_older_workers = std::ranges::any_of(job.nodes, [&](const auto& entry) {
        const auto& [id, node] = entry;
        return node.busy && *node.busy != job.group.generation && is_from_there(id);
    });
    return has_older_workers && std::ranges::none_of(job.group.members, [&](const auto& entry) {
               const auto node = job.nodes.find(entry.first);
               const bool lost = node == job.nodes.end() || node->second.link == coordinator::Link::kLost;
               return !lost && is_from_there(entry.first);
           });
}

bool StoreClients::is_of_member(const coordinator::State& job, const std::string& address) {
    if (members_of_ != job.group.generation) {
        members_.clear();
        for (const auto& [node, member] : job.group.members)
            if (const auto origin = origins_.find(node); origin != origins_.end())
                members_[origin->second].push_back(node);
        members_of_ = job.group.generation;
    }
    return members_.contains(address);
}

void StoreClients::hold(UniqueFd socket, Generation generation, const std::string& address,
                        const coordinator::State& job) {
    if (!is_of_member(job, address)) return;  // it has become another group's since
    const std::vector<protocol::NodeId>& nodes = members_.at(address);
    const auto connected = std::ranges::find_if(nodes, [&](const protocol::NodeId& id) {
        const auto node = job.nodes.find(id);
        return node != job.nodes.end() && node->second.link == coordinator::Link::kConnected;
    });
    hold_(std::move(socket), generation, connected != nodes.end() ? *connected : nodes.front());
}

void StoreClients::note_origin(const coordinator::State& job, const protocol::NodeId& node, std::string address) {
    members_of_ = Generation{0};
    origins_[node] = std::move(address);
    if (origins_.size() <= 2 * job.nodes.size() + kMaxForgottenOrigins) return;
    std::erase_if(origins_,
                  [&](const auto& origin) { return origin.first != node && !job.nodes.contains(origin.first); });
}

std::string StoreClients::pass_on(StoreClient client, std::optional<Generation> generation, const std::string& address,
                                  const coordinator::State& job) {
    store::StoreServer* const store = generation ? stores_.find(*generation) : nullptr;
    if (client.silent && (store == nullptr || !store->has_client_beside(client.socket.get())))
        return "no answer during the handshake";
    if (store == nullptr && generation) return "a TCPStore client of a worker group that has ended";
    if (store == nullptr) {
        return "a TCPStore client, but no worker group with a store runs. If it is torchrun: start ddprun on all "
               "nodes of the job";
    }
    if (!client.own_host && members_only_ && !is_of_member(job, address))
        return "a TCPStore client from a host without workers of the job; --local-addr on this node admits all hosts "
               "(INSECURE)";
    if (may_be_outdated(job, origins_, address)) return "a TCPStore client from the host of a node that was lost";
    if (!client.own_host && hold_)
        hold(std::move(client.socket), *generation, address, job);
    else
        store->adopt(std::move(client.socket));
    return "";
}

}  // namespace ddprun::daemon
