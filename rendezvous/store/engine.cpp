#include "rendezvous/store/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "rendezvous/store/wire.hpp"

namespace ddprun::store {
namespace {

/// Decimal text as C's strtoll reads it in base 10: blanks before it and anything after it are ignored. Nothing when
/// there are no digits, or more than 64 bits.
std::optional<std::int64_t> leading_number(std::string_view text) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\n\v\f\r"), text.size()));
    // from_chars knows no plus sign; "+-1" is no number.
    if (text.starts_with('+')) {
        text.remove_prefix(1);
        if (text.starts_with('-')) return std::nullopt;
    }
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{}) return std::nullopt;
    return number;
}

std::int64_t wrapping_sum(std::int64_t a, std::int64_t b) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

std::size_t size_of_entry(std::string_view key, std::string_view value) {
    return key.size() + value.size() + kEntryBytes;
}

/// Overwrites, and gives memory back when a large value makes way for a small one.
void replace(std::string& value, std::string_view by) {
    if (by.size() < value.capacity() / 2) {
        value = std::string(by);
    } else {
        value.assign(by);
    }
}

}  // namespace

Result<Released> Engine::apply(ConnectionId from, const Request& request, std::string& reply) {
    // Any request ends the connection's wait (W6); only CANCEL_WAIT says so itself.
    waits_.forget(from);
    switch (request.kind) {
        case RequestKind::kSet: return set(request.key, request.value);
        case RequestKind::kCompareSet: return compare_set(request, reply);
        case RequestKind::kAdd: return add(request.key, request.number, reply);
        case RequestKind::kWait: return wait(from, request, reply);
        case RequestKind::kAppend: return append(request.key, request.value);
        case RequestKind::kMultiGet: return multi_get(request, reply);
        case RequestKind::kMultiSet: return multi_set(request);
        case RequestKind::kQueuePush: return push(request.key, request.value);
        case RequestKind::kListKeys: return list_keys(reply);
        case RequestKind::kBarrier: return barrier(from, request, reply);

        case RequestKind::kValidate: break;  // has done its work in the decoder
        case RequestKind::kGet: get(request.key, reply); break;
        case RequestKind::kQueuePop: pop(request.key, reply); break;
        case RequestKind::kCheck: {
            const bool all = std::ranges::all_of(request.keys, [&](std::string_view key) { return present(key); });
            wire::append_number<std::uint8_t>(reply, all ? 0 : 1);
            break;
        }
        case RequestKind::kGetNumKeys: wire::append_number<std::int64_t>(reply, values_.size()); break;
        case RequestKind::kDeleteKey: wire::append_number<std::int64_t>(reply, erase(request.key) ? 1 : 0); break;
        case RequestKind::kCancelWait: reply += wire::kWaitCanceled; break;
        case RequestKind::kPing: wire::append_number(reply, static_cast<std::uint32_t>(request.number)); break;
        case RequestKind::kQueueLength: {
            const auto queue = queues_.find(request.key);
            wire::append_number<std::int64_t>(reply, queue == queues_.end() ? 0 : queue->second.size());
            break;
        }
    }
    return Released{};
}

Result<Released> Engine::set(std::string_view key, std::string_view value) {
    if (auto stored = store(key, value); !stored) return stored.error();
    return waits_.release_all(key);
}

Result<Released> Engine::compare_set(const Request& request, std::string& reply) {
    const auto found = values_.find(request.key);
    const bool missing = found == values_.end();
    const bool matches = missing ? request.expected.empty() : found->second == request.expected;
    if (!matches) {
        wire::append_bytes(reply, missing ? request.expected : std::string_view(found->second));
        return Released{};  // nothing was written, so nobody is woken (R8)
    }
    if (auto stored = store(request.key, request.value); !stored) return stored.error();
    wire::append_bytes(reply, request.value);
    return waits_.release_all(request.key);
}

Result<Released> Engine::add(std::string_view key, std::int64_t amount, std::string& reply) {
    const auto sum = sum_of(key, amount);
    if (!sum) return sum.error();
    if (auto stored = store(key, std::to_string(*sum)); !stored) return stored.error();
    wire::append_number(reply, *sum);
    return waits_.release_all(key);
}

Result<Released> Engine::append(std::string_view key, std::string_view more) {
    const auto found = values_.find(key);
    if (found == values_.end()) return set(key, more);
    if (more.size() > limits_.value_bytes - std::min(limits_.value_bytes, found->second.size())) {
        return Error{Errc::kLimit, fmt::format("APPEND to a value of more than {} bytes", limits_.value_bytes)};
    }
    if (auto room = make_sure_of_room(more.size()); !room) return room.error();
    found->second.append(more);
    stored_bytes_ += more.size();
    return waits_.release_all(key);
}

Result<Released> Engine::multi_set(const Request& request) {
    // All or nothing (R9), so the room is made sure of first. A key that comes twice is counted twice: on the safe
    // side.
    std::size_t more_bytes = 0;
    for (std::size_t i = 0; i < request.keys.size(); ++i) more_bytes += growth(request.keys[i], request.values[i]);
    if (auto room = make_sure_of_room(more_bytes); !room) return room.error();
    Released released;
    for (std::size_t i = 0; i < request.keys.size(); ++i) {
        const auto one = set(request.keys[i], request.values[i]);
        if (!one) return one.error();
        released.insert(released.end(), one->begin(), one->end());
    }
    return released;
}

Result<Released> Engine::wait(ConnectionId from, const Request& request, std::string& reply) {
    std::vector<std::string_view> missing;
    std::size_t more_bytes = 0;
    for (const std::string_view key : request.keys) {
        if (present(key)) continue;
        missing.push_back(key);
        more_bytes += key.size() + kAwaitedNameBytes;
    }
    if (missing.empty()) {
        reply += wire::kStopWaiting;
        return Released{};
    }
    if (auto room = make_sure_of_room(more_bytes); !room) return room.error();
    waits_.begin(from, missing);
    return Released{};
}

Result<Released> Engine::barrier(ConnectionId from, const Request& request, std::string& reply) {
    const auto arrived = sum_of(request.key, 1);
    if (!arrived) return arrived.error();
    const std::string text = std::to_string(*arrived);
    const std::size_t more_bytes = growth(request.key, text) + request.key.size() + kAwaitedNameBytes;
    if (auto room = make_sure_of_room(more_bytes); !room) return room.error();
    if (auto stored = store(request.key, text); !stored) return stored.error();
    if (*arrived >= request.number) {
        reply += wire::kStopWaiting;
        return waits_.release_all(request.key);
    }
    // The counter is there, but those who wait for its key are woken by the last arrival only.
    waits_.begin(from, std::span(&request.key, 1));
    return Released{};
}

Result<Released> Engine::push(std::string_view queue, std::string_view element) {
    const std::size_t more_bytes = size_of_entry(queue, element);
    if (auto room = make_sure_of_room(more_bytes); !room) return room.error();
    auto found = queues_.find(queue);
    if (found == queues_.end()) found = queues_.emplace(queue, std::deque<std::string>{}).first;
    found->second.emplace_back(element);
    stored_bytes_ += more_bytes;
    return waits_.release_first(queue);
}

void Engine::pop(std::string_view queue, std::string& reply) {
    const auto found = queues_.find(queue);
    wire::append_number<std::int64_t>(reply, found == queues_.end() ? 0 : found->second.size());
    if (found == queues_.end()) return;
    wire::append_bytes(reply, found->second.front());
    stored_bytes_ -= size_of_entry(queue, found->second.front());
    found->second.pop_front();
    if (found->second.empty()) queues_.erase(found);
}

void Engine::get(std::string_view key, std::string& reply) const { wire::append_bytes(reply, value_of(key)); }

Result<Released> Engine::multi_get(const Request& request, std::string& reply) const {
    std::size_t reply_bytes = 0;
    for (const std::string_view key : request.keys) {
        reply_bytes += sizeof(std::uint64_t) + value_of(key).size();
        if (reply_bytes > limits_.reply_bytes) {
            return Error{Errc::kLimit, fmt::format("MULTI_GET of more than {} bytes", limits_.reply_bytes)};
        }
    }
    for (const std::string_view key : request.keys) get(key, reply);
    return Released{};
}

Result<Released> Engine::list_keys(std::string& reply) const {
    std::size_t reply_bytes = sizeof(std::int64_t);
    for (const auto& [key, value] : values_) reply_bytes += sizeof(std::uint64_t) + key.size();
    if (reply_bytes > limits_.reply_bytes) {
        return Error{Errc::kLimit, fmt::format("LIST_KEYS of more than {} bytes", limits_.reply_bytes)};
    }
    wire::append_number<std::int64_t>(reply, values_.size());
    for (const auto& [key, value] : values_) wire::append_bytes(reply, key);
    return Released{};
}

bool Engine::erase(std::string_view key) {
    const auto found = values_.find(key);
    if (found == values_.end()) return false;
    stored_bytes_ -= size_of_entry(found->first, found->second);
    values_.erase(found);
    return true;
}

Result<void> Engine::store(std::string_view key, std::string_view value) {
    if (auto room = make_sure_of_room(growth(key, value)); !room) return room;
    const auto found = values_.find(key);
    if (found == values_.end()) {
        values_.emplace(key, value);
        stored_bytes_ += size_of_entry(key, value);
    } else {
        stored_bytes_ += value.size();
        stored_bytes_ -= found->second.size();
        replace(found->second, value);
    }
    return {};
}

Result<std::int64_t> Engine::sum_of(std::string_view key, std::int64_t amount) const {
    const auto found = values_.find(key);
    if (found == values_.end()) return amount;
    const auto number = leading_number(found->second);
    if (!number) return Error{Errc::kMalformed, "ADD or BARRIER on a value that is not a number of 64 bits"};
    return wrapping_sum(*number, amount);
}

std::string_view Engine::value_of(std::string_view key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? std::string_view{} : std::string_view(found->second);
}

bool Engine::present(std::string_view name) const {
    return values_.find(name) != values_.end() || queues_.find(name) != queues_.end();
}

std::size_t Engine::growth(std::string_view key, std::string_view value) const {
    const auto found = values_.find(key);
    if (found == values_.end()) return size_of_entry(key, value);
    return value.size() > found->second.size() ? value.size() - found->second.size() : 0;
}

Result<void> Engine::make_sure_of_room(std::size_t more_bytes) const {
    if (more_bytes <= limits_.store_bytes - std::min(limits_.store_bytes, bytes())) return {};
    return Error{Errc::kLimit,
                 fmt::format("the store is full: it holds {} of at most {} bytes, and {} more are asked for", bytes(),
                             limits_.store_bytes, more_bytes)};
}

}  // namespace ddprun::store
