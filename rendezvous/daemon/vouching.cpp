#include "rendezvous/daemon/vouching.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <optional>
#include <utility>

#include "common/endpoint.hpp"
#include "common/text/number.hpp"

namespace ddprun::daemon {
namespace {

/// Returns the numeric address and port of one end, as ::getpeername or ::getsockname says; empty: it has ended.
template <typename Get>
std::optional<Endpoint> end_of(int socket, Get get) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    auto* const plain = reinterpret_cast<sockaddr*>(&address);
    std::array<char, NI_MAXHOST> host{};
    if (get(socket, plain, &size) != 0 ||
        ::getnameinfo(plain, size, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0)
        return std::nullopt;
    std::string name(host.data());
    if (const auto zone = name.find('%'); zone != std::string::npos) name.resize(zone);  // of this host alone
    constexpr std::string_view kMapped = "::ffff:";
    if (name.starts_with(kMapped) && name.find('.') != std::string::npos) name.erase(0, kMapped.size());
    return Endpoint{name, ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port)};  // of both families
}

constexpr std::chrono::seconds kAskAgain{1};  // an agent that has reconnected meanwhile may have missed it

bool is_established(int socket) {
    tcp_info info{};
    socklen_t size = sizeof info;
    return ::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_state == TCP_ESTABLISHED;
}

}  // namespace

void Vouching::hold(UniqueFd socket, Generation generation, const protocol::NodeId& node, TimePoint now) {
    const auto client = end_of(socket.get(), ::getpeername);
    const auto store = end_of(socket.get(), ::getsockname);
    if (!client || !store) return;
    std::string peer = to_string(*client);
    if (counts_[node] >= max_of_node_)
        return closed_(peer, fmt::format("a TCPStore client of a node that has not answered for {} others of its host",
                                         max_of_node_));
    ++counts_[node];
    protocol::VouchRequest request{++last_request_, client->host, client->port, store->host, store->port};
    ask_(node, request);
    const std::uint64_t number = request.request;
    held_[number] = {std::move(socket), generation, node, std::move(peer), std::move(request), now, now};
}

void Vouching::forget(std::map<std::uint64_t, Held>::iterator held) {
    if (const auto count = counts_.find(held->second.node); --count->second == 0) counts_.erase(count);
    held_.erase(held);
}

void Vouching::answer(const protocol::NodeId& node, const protocol::Vouch& vouch) {
    const auto found = held_.find(vouch.request);
    if (found == held_.end() || found->second.node != node) return;  // it was asked twice, or is late
    UniqueFd socket = std::move(found->second.socket);
    const std::string peer = found->second.peer;
    store::StoreServer* const store = stores_.find(found->second.generation);
    forget(found);
    if (!vouch.own_user) {
        return closed_(
            peer,
            vouch.owner.empty()
                ? "a TCPStore client for which the ddprun of its host finds no socket (--store-vouch): the "
                  "client has ended, socket diagnostics (sock_diag) are missing there, or an address "
                  "translation (NAT, a container's network, a proxy) is between that ddprun and the "
                  "client or this daemon. If it was a worker, start the job without --store-vouch"
                : fmt::format("a TCPStore client that is {}, not of the user of the job (--store-vouch)", vouch.owner));
    }
    // If the client had closed it, a later connection could have had its addresses when the node looked.
    if (store != nullptr && is_established(socket.get())) store->adopt(std::move(socket));
}

void Vouching::remind(TimePoint now) {
    for (auto next = held_.begin(); next != held_.end();) {
        const auto held = next++;
        if (!is_established(held->second.socket.get())) {
            forget(held);  // its node would look for it in vain
            continue;
        }
        if (now - held->second.since < kVouchTime) {
            if (now - held->second.asked_at < kAskAgain) continue;
            held->second.asked_at = now;
            ask_(held->second.node, held->second.request);
            continue;
        }
        closed_(held->second.peer, fmt::format("a TCPStore client for which its node has not vouched within {} "
                                               "(--store-vouch): the ddprun there is stopped, or its connection to "
                                               "this daemon is interrupted. Look at that host",
                                               seconds_text(kVouchTime)));
        forget(held);
    }
}

}  // namespace ddprun::daemon
