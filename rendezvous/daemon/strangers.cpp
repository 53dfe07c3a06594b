#include "rendezvous/daemon/strangers.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/ip/network_v6.hpp>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

namespace ddprun::daemon {
namespace {

bool has_unread_bytes(int socket) {
    char byte = 0;
    return ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
}

}  // namespace

std::string network_of(const boost::asio::ip::address& address) {
    if (address.is_v4() || address.to_v6().is_link_local() || address.is_loopback()) return address.to_string();
    return boost::asio::ip::make_network_v6(address.to_v6(), 64).canonical().to_string();
}

Strangers::Place Strangers::add(const std::string& network, bool local, TimePoint now) {
    const auto place = list_->insert(list_->end(), {network, local, now});
    const auto count = static_cast<std::size_t>(std::ranges::count(*list_, network, &Stranger::network));
    if (!local && count > kMaxStrangersPerNetwork) {
        std::vector<Stranger*> neighbors;
        for (Stranger& stranger : *list_)
            if (stranger.network == network && may_end(stranger, count, now)) neighbors.push_back(&stranger);
        (void)end_first_idle(neighbors);
    }
    return {list_, place};
}

bool Strangers::make_room(TimePoint now) {
    if (size() < kMaxStrangers) return true;
    std::map<std::string_view, std::size_t> counts;
    for (const Stranger& stranger : *list_) ++counts[stranger.network];
    const auto count_of = [&](const Stranger* stranger) { return counts[stranger->network]; };
    std::vector<Stranger*> candidates;
    for (Stranger& stranger : *list_)
        if (may_end(stranger, count_of(&stranger), now)) candidates.push_back(&stranger);
    std::ranges::stable_sort(candidates, std::greater(), count_of);  // of equal ones the oldest stays first
    return end_first_idle(candidates);
}

std::size_t Strangers::size() const {
    return list_->size() - static_cast<std::size_t>(std::ranges::count(*list_, "", &Stranger::network));
}

bool Strangers::may_end(const Stranger& stranger, std::size_t in_network, TimePoint now) {
    return stranger.end && now - stranger.since >= (in_network > kFewStrangers ? kMinStay : kStay);
}

/// Ends the first of them that does not wait for this process.
bool Strangers::end_first_idle(const std::vector<Stranger*>& strangers) {
    const auto idle =
        std::ranges::find_if_not(strangers, has_unread_bytes, [](auto* stranger) { return stranger->socket; });
    if (idle == strangers.end()) return false;
    (*idle)->network.clear();
    std::exchange((*idle)->end, nullptr)();
    return true;
}

}  // namespace ddprun::daemon
