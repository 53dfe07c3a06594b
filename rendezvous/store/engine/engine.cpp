#include "rendezvous/store/engine/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "rendezvous/store/codec/decimal.hpp"
#include "rendezvous/store/codec/wire.hpp"

namespace ddprun::store {
namespace {

/// Appends the value, or an empty one (R7). Large ones are not copied.
void answer(Reply& reply, const Table::Entry* entry) {
    if (entry == nullptr) return reply.bytes(std::string_view{});
    if (const Block block = entry->block()) return reply.bytes(block);
    reply.bytes(entry->value());
}

std::size_t block_bytes_of(const Table::Entry* entry) { return entry ? entry->block().held_bytes() : 0; }

}  // namespace

Result<void> Engine::apply(ConnectionId from, const Request& request, Reply& reply) {
    waits_.forget_released();
    // Any request ends the connection's wait (W6); CANCEL_WAIT does nothing else.
    waits_.forget(from);
    switch (request.kind) {
        case RequestKind::kSet: return set(request.key, request.value, request.block);
        case RequestKind::kCompareSet: return compare_set(request, reply);
        case RequestKind::kAdd: return add(request.key, request.number, reply);
        case RequestKind::kWait: return wait(from, request, reply);
        case RequestKind::kAppend: return append(request);
        case RequestKind::kMultiGet: return multi_get(request, reply);
        case RequestKind::kMultiSet: return multi_set(request);
        case RequestKind::kQueuePush: return push(request);
        case RequestKind::kListKeys: return list_keys(reply);
        case RequestKind::kBarrier: return barrier(from, request, reply);

        case RequestKind::kValidate: break;  // the decoder has handled it
        case RequestKind::kGet: answer(reply, table_.find(request.key)); break;
        case RequestKind::kQueuePop: pop(request.key, reply); break;
        case RequestKind::kCheck: {
            const bool all = std::ranges::all_of(request.keys, [&](std::string_view key) { return present(key); });
            reply.number<std::uint8_t>(all ? 0 : 1);
            break;
        }
        case RequestKind::kGetNumKeys: reply.number<std::int64_t>(static_cast<std::int64_t>(table_.size())); break;
        case RequestKind::kDeleteKey: reply.number<std::int64_t>(erase(request.key) ? 1 : 0); break;
        case RequestKind::kCancelWait: reply.byte(wire::kWaitCanceled); break;
        case RequestKind::kPing: reply.number(static_cast<std::uint32_t>(request.number)); break;
        case RequestKind::kQueueLength: {
            const auto queue = queues_.find(request.key);
            reply.number<std::int64_t>(queue == queues_.end() ? 0 : static_cast<std::int64_t>(queue->second.size()));
            break;
        }
    }
    return {};
}

Result<void> Engine::set(std::string_view key, std::string_view value, Block* block) {
    if (auto stored = store(table_.locate(key), key, value, block); !stored) return stored;
    waits_.release_all(key);
    return {};
}

Result<void> Engine::compare_set(const Request& request, Reply& reply) {
    const Table::Slot slot = table_.locate(request.key);
    const Table::Entry* const entry = slot.entry();
    const bool matches = entry ? entry->value() == request.expected : request.expected.empty();
    if (!matches) {
        // Nothing is written, so no wait is released (R8).
        if (entry) {
            answer(reply, entry);
        } else {
            reply.bytes(request.expected);
        }
        return {};
    }
    if (auto stored = store(slot, request.key, request.value, request.block); !stored) return stored;
    waits_.release_all(request.key);
    answer(reply, table_.find(request.key));
    return {};
}

Result<void> Engine::add(std::string_view key, std::int64_t amount, Reply& reply) {
    const Table::Slot slot = table_.locate(key);
    const auto sum = sum_of(slot, amount);
    if (!sum) return sum.error();
    if (auto stored = store(slot, key, Decimal(*sum).text(), nullptr); !stored) return stored;
    waits_.release_all(key);
    reply.number(*sum);
    return {};
}

Result<void> Engine::append(const Request& request) {
    const Table::Slot slot = table_.locate(request.key);
    const Table::Entry* const entry = slot.entry();
    if (entry == nullptr) return set(request.key, request.value, request.block);
    const std::size_t before = entry->value().size();
    const std::size_t after = before + request.value.size();
    if (after > limits_.value_bytes) {
        return Error{Errc::kLimit, fmt::format("APPEND to a value of more than {} bytes", limits_.value_bytes)};
    }
    if (after < kLargeBytes) {
        std::string whole;
        whole.reserve(after);
        whole.append(entry->value()).append(request.value);
        if (auto stored = store(slot, request.key, whole, nullptr); !stored) return stored;
        waits_.release_all(request.key);
        return {};
    }
    if (auto room = check_room(0, request.value.size()); !room) return room;
    const std::size_t block_before = block_bytes_of(entry);
    // Replies in flight carry the value as it was, so what they share is copied; otherwise the bytes stay in place.
    if (!table_.append_in_place(slot, request.value)) {
        Block whole(2 * after, block_memory_);
        whole.append(entry->value());
        whole.append(request.value);
        table_.assign(slot, request.key, std::move(whole));
    }
    block_bytes_ += block_bytes_of(slot.entry()) - block_before;
    stored_bytes_ += request.value.size();
    waits_.release_all(request.key);
    return {};
}

Result<void> Engine::multi_set(const Request& request) {
    // The request stores all or nothing (R9), so the limits are checked first. A key that occurs twice is counted
    // twice: the sum may only be too high.
    Growth more{0, 0};
    for (std::size_t i = 0; i < request.keys.size(); ++i) {
        const auto [keys, bytes] = growth(table_.locate(request.keys[i]), request.keys[i], request.values[i].size());
        more.keys += keys;
        more.bytes += bytes;
    }
    if (auto room = check_room(more.keys, more.bytes); !room) return room;
    for (std::size_t i = 0; i < request.keys.size(); ++i) {
        if (auto one = set(request.keys[i], request.values[i], nullptr); !one) return one;
    }
    return {};
}

Result<void> Engine::wait(ConnectionId from, const Request& request, Reply& reply) {
    std::vector<std::string_view> missing;
    std::size_t more_bytes = 0;
    for (const std::string_view key : request.keys) {
        if (present(key)) continue;
        missing.push_back(key);
        more_bytes += key.size() + kAwaitedNameBytes;
    }
    if (missing.empty()) {
        reply.byte(wire::kStopWaiting);
        return {};
    }
    if (auto room = check_room(0, more_bytes); !room) return room;
    if (auto room = check_waiters(missing.size()); !room) return room;
    waits_.begin(from, missing);
    return {};
}

Result<void> Engine::barrier(ConnectionId from, const Request& request, Reply& reply) {
    const Table::Slot slot = table_.locate(request.key);
    const auto arrived = sum_of(slot, 1);
    if (!arrived) return arrived.error();
    const Decimal text(*arrived);
    const bool last = *arrived >= request.number;
    if (!last) {  // it is going to wait: check that it can before it counts
        const auto [keys, bytes] = growth(slot, request.key, text.text().size());
        const std::size_t waiting_bytes = request.key.size() + kAwaitedNameBytes;
        if (auto room = check_room(keys, bytes + waiting_bytes); !room) return room;
        if (auto room = check_waiters(1); !room) return room;
    }
    if (auto stored = store(slot, request.key, text.text(), nullptr); !stored) return stored;
    if (last) {
        waits_.release_all(request.key);
        reply.byte(wire::kStopWaiting);
        return {};
    }
    // The counter is stored, but only the last arrival releases the connections that wait for its key.
    waits_.begin(from, std::span(&request.key, 1));
    return {};
}

Result<void> Engine::push(const Request& request) {
    const std::size_t more_bytes = request.key.size() + request.value.size() + kElementBytes;
    if (auto room = check_room(1, more_bytes); !room) return room;
    Queue added(1);
    Element& element = added.front();
    element.large = keep(request.value, request.block);
    if (!element.large) element.small = request.value;
    const std::size_t block_bytes = element.large.held_bytes();
    auto found = queues_.find(request.key);
    if (found == queues_.end()) found = queues_.emplace(request.key, Queue{}).first;
    found->second.splice(found->second.end(), added);
    ++element_count_;
    block_bytes_ += block_bytes;
    stored_bytes_ += more_bytes;
    waits_.release_first(request.key);
    return {};
}

void Engine::pop(std::string_view name, Reply& reply) {
    const auto found = queues_.find(name);
    reply.number<std::int64_t>(found == queues_.end() ? 0 : static_cast<std::int64_t>(found->second.size()));
    if (found == queues_.end()) return;
    const Element& first = found->second.front();
    if (first.large) {
        reply.bytes(first.large);
    } else {
        reply.bytes(first.small);
    }
    stored_bytes_ -= name.size() + first.size() + kElementBytes;
    block_bytes_ -= first.large.held_bytes();
    --element_count_;
    found->second.pop_front();
    if (found->second.empty()) queues_.erase(found);
}

Result<void> Engine::multi_get(const Request& request, Reply& reply) const {
    // A reply that is too long is not begun.
    std::vector<const Table::Entry*> entries;
    entries.reserve(request.keys.size());
    std::size_t reply_bytes = 0;
    std::size_t copied_bytes = 0;
    for (const std::string_view key : request.keys) {
        const Table::Entry* const entry = entries.emplace_back(table_.find(key));
        const std::size_t value_bytes = entry ? entry->value().size() : 0;
        reply_bytes += sizeof(std::uint64_t) + value_bytes;
        copied_bytes += sizeof(std::uint64_t) + (value_bytes < kLargeBytes ? value_bytes : 0);
        if (reply_bytes > limits_.reply_bytes) {
            return Error{Errc::kLimit, fmt::format("MULTI_GET of more than {} bytes", limits_.reply_bytes)};
        }
    }
    reply.reserve(copied_bytes);
    for (const Table::Entry* const entry : entries) answer(reply, entry);
    return {};
}

Result<void> Engine::list_keys(Reply& reply) const {
    std::size_t reply_bytes = sizeof(std::int64_t);
    table_.for_each([&](const Table::Entry& entry) { reply_bytes += sizeof(std::uint64_t) + entry.key().size(); });
    if (reply_bytes > limits_.reply_bytes) {
        return Error{Errc::kLimit, fmt::format("LIST_KEYS of more than {} bytes", limits_.reply_bytes)};
    }
    reply.reserve(reply_bytes);
    reply.number<std::int64_t>(static_cast<std::int64_t>(table_.size()));
    table_.for_each([&](const Table::Entry& entry) { reply.bytes(entry.key()); });
    return {};
}

bool Engine::erase(std::string_view key) {
    const Table::Slot slot = table_.locate(key);
    const Table::Entry* const entry = slot.entry();
    if (entry == nullptr) return false;
    stored_bytes_ -= key.size() + entry->value().size() + kEntryBytes;
    block_bytes_ -= block_bytes_of(entry);
    table_.erase(slot);
    return true;
}

Result<void> Engine::store(Table::Slot slot, std::string_view key, std::string_view value, Block* block) {
    const auto [keys, bytes] = growth(slot, key, value.size());
    if (auto room = check_room(keys, bytes); !room) return room;
    const Table::Entry* const entry = slot.entry();
    const std::size_t size_before = entry ? key.size() + entry->value().size() + kEntryBytes : 0;
    const std::size_t block_before = block_bytes_of(entry);
    const std::size_t size_after = key.size() + value.size() + kEntryBytes;  // now: `value` may be moved with its block
    std::size_t block_after = 0;
    if (Block large = keep(value, block)) {
        block_after = large.held_bytes();
        table_.assign(slot, key, std::move(large));
    } else {
        table_.assign(slot, key, value);
    }
    stored_bytes_ += size_after - size_before;
    block_bytes_ += block_after - block_before;
    return {};
}

Block Engine::keep(std::string_view value, Block* block) {
    if (value.size() < kLargeBytes) return {};
    if (block) {
        block->trim();
        return std::move(*block);
    }
    Block copy(value.size(), block_memory_);
    copy.append(value);
    return copy;
}

Result<std::int64_t> Engine::sum_of(const Table::Slot& slot, std::int64_t amount) {
    if (slot.entry() == nullptr) return amount;
    const auto number = leading_number(slot.entry()->value());
    if (!number)
        return Error{Errc::kMalformed,
                     "ADD or BARRIER on a value that does not begin with a decimal number of at most 64 bits"};
    return wrapping_sum(*number, amount);
}

bool Engine::present(std::string_view name) const {
    return table_.find(name) != nullptr || (!queues_.empty() && queues_.find(name) != queues_.end());
}

Engine::Growth Engine::growth(const Table::Slot& slot, std::string_view key, std::size_t value_bytes) {
    const Table::Entry* const entry = slot.entry();
    if (entry == nullptr) return {1, key.size() + value_bytes + kEntryBytes};
    const std::size_t before = entry->value().size();
    return {0, value_bytes > before ? value_bytes - before : 0};
}

Result<void> Engine::check_room(std::size_t more_keys, std::size_t more_bytes) const {
    const std::size_t entries = table_.size() + element_count_;
    if (more_keys > limits_.store_keys - std::min(limits_.store_keys, entries)) {
        return Error{Errc::kLimit, fmt::format("the store is full: it holds {} of at most {} keys and queue elements",
                                               entries, limits_.store_keys)};
    }
    if (more_bytes <= limits_.store_bytes - std::min(limits_.store_bytes, bytes())) return {};
    return Error{Errc::kLimit,
                 fmt::format("the store is full: it holds {} of at most {} bytes, and the request needs {} more",
                             bytes(), limits_.store_bytes, more_bytes)};
}

Result<void> Engine::check_waiters(std::size_t more) const {
    if (more <= limits_.waiters - std::min(limits_.waiters, waits_.size())) return {};
    return Error{Errc::kLimit,
                 fmt::format("connections wait for {} keys already; the limit is {}", waits_.size(), limits_.waiters)};
}

}  // namespace ddprun::store
