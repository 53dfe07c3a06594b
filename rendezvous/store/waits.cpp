#include "rendezvous/store/waits.hpp"

#include <cassert>

namespace ddprun::store {

void Waits::begin(ConnectionId connection, std::span<const std::string_view> names) {
    const auto [wait, fresh] = waits_.try_emplace(connection);
    assert(fresh && !names.empty());
    wait->second.ticket = next_ticket_++;
    for (const std::string_view name : names) {
        auto waiters = waiters_.find(name);
        if (waiters == waiters_.end()) waiters = waiters_.emplace(name, Waiters{}).first;
        const bool added = waiters->second.emplace(wait->second.ticket, connection).second;
        if (!added) continue;  // the name came twice in the list
        wait->second.names.emplace_back(name);
        ++wait->second.missing;
        bytes_ += name.size() + kAwaitedNameBytes;
    }
}

void Waits::forget(ConnectionId connection) {
    const auto wait = waits_.find(connection);
    if (wait == waits_.end()) return;
    for (const std::string& name : wait->second.names) {
        const auto waiters = waiters_.find(name);
        if (waiters == waiters_.end()) continue;  // it has come, for this wait and for all others
        waiters->second.erase(wait->second.ticket);
        if (waiters->second.empty()) waiters_.erase(waiters);
    }
    erase(wait);
}

Released Waits::release_all(std::string_view name) {
    Released released;
    const auto waiters = waiters_.find(name);
    if (waiters == waiters_.end()) return released;
    for (const auto& [ticket, connection] : waiters->second) count_down(connection, released);
    waiters_.erase(waiters);
    return released;
}

Released Waits::release_first(std::string_view name) {
    Released released;
    const auto waiters = waiters_.find(name);
    if (waiters == waiters_.end()) return released;
    const auto longest = waiters->second.begin();
    count_down(longest->second, released);
    waiters->second.erase(longest);
    if (waiters->second.empty()) waiters_.erase(waiters);
    return released;
}

void Waits::count_down(ConnectionId connection, Released& released) {
    const auto wait = waits_.find(connection);
    assert(wait != waits_.end() && wait->second.missing > 0);
    if (--wait->second.missing > 0) return;
    released.push_back(connection);
    erase(wait);
}

void Waits::erase(std::unordered_map<ConnectionId, Wait>::iterator wait) {
    for (const std::string& name : wait->second.names) bytes_ -= name.size() + kAwaitedNameBytes;
    waits_.erase(wait);
}

}  // namespace ddprun::store
