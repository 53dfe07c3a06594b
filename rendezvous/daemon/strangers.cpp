#include "rendezvous/daemon/strangers.hpp"

#include <sys/socket.h>

#include <algorithm>
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

Strangers::Place Strangers::add(const std::string& address, bool local, TimePoint now) {
    list_->push_back({address, local, now});
    const auto count = std::ranges::count(*list_, address, &Stranger::address);
    if (!local && static_cast<std::size_t>(count) > kMaxStrangersPerAddress) (void)end_oldest_from(address, now);
    return {list_, std::prev(list_->end())};
}

bool Strangers::make_room(TimePoint now) {
    if (size() < kMaxStrangers) return true;
    std::map<std::string_view, std::size_t> counts;
    for (const Stranger& stranger : *list_)
        if (!stranger.address.empty()) ++counts[stranger.address];
    const auto most = std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; });
    return end_oldest_from(std::string(most->first), now);
}

std::size_t Strangers::size() const {
    return list_->size() - static_cast<std::size_t>(std::ranges::count(*list_, "", &Stranger::address));
}

bool Strangers::end_oldest_from(const std::string& address, TimePoint now) {
    for (Stranger& stranger : *list_) {
        if (stranger.address != address || !stranger.end) continue;
        if (now - stranger.since < kStrangerStays) return false;
        if (has_unread_bytes(stranger.socket)) continue;  // it waits for this process
        stranger.address.clear();
        std::exchange(stranger.end, nullptr)();
        return true;
    }
    return false;
}

}  // namespace ddprun::daemon
