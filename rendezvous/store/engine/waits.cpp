#include "rendezvous/store/engine/waits.hpp"

#include <cassert>

namespace ddprun::store {

void Waits::begin(ConnectionId connection, std::span<const std::string_view> names) {
    const auto [entry, fresh] = connections_.try_emplace(connection);
    assert(fresh && !names.empty());
    if (released_.capacity() < connections_.size()) released_.reserve(2 * connections_.size());
    Wait& wait = entry->second;
    if (names.size() > 1) wait.many = std::make_unique<Waiter[]>(names.size());
    Waiter* next = wait.many ? wait.many.get() : &wait.one;
    for (const std::string_view name : names) {
        auto found = names_.find(name);
        if (found == names_.end()) found = names_.emplace(name, Queue{}).first;
        Queue& queue = found->second;
        if (queue.last && queue.last->connection == &*entry) continue;  // the name occurs twice in the list
        Waiter& waiter = *next++;
        ++wait.count;
        waiter = {&*found, &*entry, queue.last, nullptr};
        (queue.last ? queue.last->after : queue.first) = &waiter;
        queue.last = &waiter;
        ++wait.missing;
        ++size_;
        bytes_ += name.size() + kAwaitedNameBytes;
    }
}

void Waits::forget(ConnectionId connection) {
    if (connections_.empty()) return;
    const auto found = connections_.find(connection);
    if (found == connections_.end()) return;
    Wait& wait = found->second;
    for (Waiter& waiter : wait.waiters()) {
        if (waiter.name == nullptr) continue;
        Names::value_type* const name = waiter.name;
        unlink(waiter);
        if (name->second.first == nullptr) names_.erase(names_.find(name->first));
    }
    connections_.erase(found);
}

void Waits::release_all(std::string_view name) noexcept {
    if (names_.empty()) return;
    const auto found = names_.find(name);
    if (found == names_.end()) return;
    while (found->second.first) release(*found->second.first);
    names_.erase(found);
}

void Waits::release_first(std::string_view name) noexcept {
    const auto found = names_.find(name);
    if (found == names_.end()) return;
    release(*found->second.first);
    if (found->second.first == nullptr) names_.erase(found);
}

void Waits::unlink(Waiter& waiter) {
    Queue& queue = waiter.name->second;
    (waiter.before ? waiter.before->after : queue.first) = waiter.after;
    (waiter.after ? waiter.after->before : queue.last) = waiter.before;
    --size_;
    bytes_ -= waiter.name->first.size() + kAwaitedNameBytes;
    waiter.name = nullptr;
}

void Waits::release(Waiter& waiter) {
    auto& [connection, wait] = *waiter.connection;
    unlink(waiter);
    if (--wait.missing > 0) return;
    assert(released_.size() < released_.capacity());
    released_.push_back(connection);
    connections_.erase(connections_.find(connection));
}

}  // namespace ddprun::store
