#include "tests/unit/rendezvous/store/engine/reference_store.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>

namespace ddprun::store::test {
namespace {

std::string little_endian(std::uint64_t number, std::size_t size) {
    std::string out;
    for (std::size_t i = 0; i < size; ++i) out += static_cast<char>(number >> (8 * i));
    return out;
}

std::string i64(std::int64_t number) { return little_endian(static_cast<std::uint64_t>(number), 8); }
std::string bytes(const std::string& text) { return little_endian(text.size(), 8) + text; }

/// Returns the number that a value holds, as ADD reads it.
std::optional<std::int64_t> counter(const std::string& value) {
    char* end = nullptr;
    errno = 0;
    const long long number = std::strtoll(value.c_str(), &end, 10);
    if (end == value.c_str() || errno == ERANGE) return std::nullopt;
    return number;
}

std::string text_of_sum(std::int64_t a, std::int64_t b) {
    return std::to_string(static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b)));
}

}  // namespace

/// Reads the fields of one request from its beginning. After the first that is not there or not allowed, all are empty.
class ReferenceStore::Fields {
public:
    Fields(std::string_view input, const Limits& limits) : input_(input), limits_(limits) {}

    std::uint64_t number(std::size_t size = 8) {
        if (outcome != Outcome::kServed) return 0;
        if (input_.size() - at < size) {
            outcome = Outcome::kIncomplete;
            return 0;
        }
        std::uint64_t value = 0;
        for (std::size_t i = 0; i < size; ++i) {
            value |= static_cast<std::uint64_t>(static_cast<unsigned char>(input_[at + i])) << (8 * i);
        }
        at += size;
        return value;
    }
    std::string key() { return string(limits_.key_bytes); }
    std::string value() { return string(limits_.value_bytes); }
    std::vector<std::pair<std::string, std::string>> list(bool with_values) {
        const std::uint64_t count = number();
        if (outcome == Outcome::kServed && count > limits_.keys_per_request) outcome = Outcome::kRefused;
        std::vector<std::pair<std::string, std::string>> items;
        for (std::uint64_t i = 0; i < count && outcome == Outcome::kServed; ++i) {
            std::string name = key();
            items.emplace_back(std::move(name), with_values ? value() : "");
        }
        return items;
    }

    Outcome outcome = Outcome::kServed;
    std::size_t at = 1;

private:
    std::string string(std::size_t limit) {
        const std::uint64_t size = number();
        if (outcome != Outcome::kServed) return {};
        if (size > limit || at + size > limits_.request_bytes) {
            outcome = Outcome::kRefused;
            return {};
        }
        if (input_.size() - at < size) {
            outcome = Outcome::kIncomplete;
            return {};
        }
        at += size;
        return std::string(input_.substr(at - size, size));
    }

    std::string_view input_;
    const Limits& limits_;
};

void ReferenceStore::receive(std::uint64_t connection, std::string_view bytes) {
    Peer& peer = peers_[connection];
    if (!peer.closed) peer.input += bytes;
}

void ReferenceStore::serve(std::uint64_t connection, std::size_t max_requests) {
    Peer& peer = peers_[connection];
    for (; max_requests > 0 && !peer.closed; --max_requests) {
        const Outcome outcome = serve_one(peer);
        if (outcome == Outcome::kRefused) close(connection);
        if (outcome != Outcome::kServed) return;
    }
}

void ReferenceStore::close(std::uint64_t connection) {
    peers_[connection].closed = true;
    peers_[connection].awaited.clear();
}

ReferenceStore::Outcome ReferenceStore::settle_dialect(Peer& peer) const {
    const std::string validate("\x00\xce\xf7\x85\x3c", 5);
    if (peer.input.empty()) return Outcome::kIncomplete;
    if (peer.input[0] == 0 && peer.input.size() < validate.size()) return Outcome::kIncomplete;
    if (peer.input.starts_with(validate)) {
        peer.dialect = Dialect::kModern;
        peer.input.erase(0, validate.size());
        return Outcome::kServed;
    }
    if (options_.older_dialect == OlderDialect::kNone) return Outcome::kRefused;
    peer.dialect = options_.older_dialect == OlderDialect::kV1_13 ? Dialect::k1_13 : Dialect::k2_1;
    return Outcome::kServed;
}

std::optional<int> ReferenceStore::modern_code(Dialect dialect, unsigned char code) {
    if (dialect == Dialect::kModern) return code >= 1 && code <= 18 ? std::optional<int>(code) : std::nullopt;
    // From SET to GETNUMKEYS all are one less than in the modern dialect.
    if (code <= 6) return code + 1;
    if (dialect == Dialect::k1_13) return code == 8 ? std::optional<int>(8) : std::nullopt;  // 7 is WATCH_KEY
    return code <= 11 ? std::optional<int>(code + 1) : std::nullopt;
}

ReferenceStore::Outcome ReferenceStore::serve_one(Peer& peer) {
    if (peer.dialect == Dialect::kUnknown) {
        if (const Outcome outcome = settle_dialect(peer); outcome != Outcome::kServed) return outcome;
    }
    if (peer.input.empty()) return Outcome::kIncomplete;
    const auto code = modern_code(peer.dialect, static_cast<unsigned char>(peer.input[0]));
    if (!code) return Outcome::kRefused;

    Fields fields(peer.input, options_.limits);
    Outcome outcome = Outcome::kServed;
    switch (*code) {
        case 4:
        case 18: outcome = serve_number(*code, peer, fields); break;
        case 5:
        case 6:
        case 10:
        case 11: outcome = serve_keys(*code, peer, fields); break;
        case 7:
        case 12:
        case 13:
        case 17: outcome = serve_plain(*code, peer, fields); break;
        default: outcome = serve_key(*code, peer, fields); break;
    }
    if (outcome == Outcome::kServed) peer.input.erase(0, fields.at);
    return outcome;
}

/// Requests about one key or queue.
ReferenceStore::Outcome ReferenceStore::serve_key(int code, Peer& peer, Fields& fields) {
    const std::string key = fields.key();
    const std::string expected = code == 2 ? fields.value() : "";
    const bool has_value = code == 1 || code == 2 || code == 9 || code == 14;
    const std::string value = has_value ? fields.value() : "";
    if (fields.outcome != Outcome::kServed) return fields.outcome;
    peer.awaited.clear();  // W6
    const auto found = keys_.find(key);
    const bool there = found != keys_.end();
    switch (code) {
        case 1:  // SET
            keys_[key] = value;
            written(key);
            break;
        case 2:  // COMPARE_SET
            if (there ? found->second == expected : expected.empty()) {
                keys_[key] = value;
                peer.sent += bytes(value);
                written(key);
            } else {
                peer.sent += bytes(there ? found->second : expected);
            }
            break;
        case 3: peer.sent += bytes(there ? found->second : ""); break;  // GET, R7
        case 8:                                                         // DELETE_KEY
            peer.sent += i64(there ? 1 : 0);
            keys_.erase(key);
            break;
        case 9:  // APPEND
            if (there && found->second.size() + value.size() > options_.limits.value_bytes) return Outcome::kRefused;
            keys_[key] += value;
            written(key);
            break;
        case 14:  // QUEUE_PUSH
            queues_[key].push_back(value);
            pushed(key);
            break;
        case 15: {  // QUEUE_POP
            const auto queue = queues_.find(key);
            peer.sent += i64(queue == queues_.end() ? 0 : static_cast<std::int64_t>(queue->second.size()));
            if (queue == queues_.end()) break;
            peer.sent += bytes(queue->second.front());
            queue->second.pop_front();
            if (queue->second.empty()) queues_.erase(queue);
            break;
        }
        case 16:  // QUEUE_LEN
            peer.sent += i64(queues_.contains(key) ? static_cast<std::int64_t>(queues_[key].size()) : 0);
            break;
        default: std::abort();
    }
    return Outcome::kServed;
}

/// ADD and BARRIER.
ReferenceStore::Outcome ReferenceStore::serve_number(int code, Peer& peer, Fields& fields) {
    const std::string key = fields.key();
    const auto argument = static_cast<std::int64_t>(fields.number());
    if (fields.outcome != Outcome::kServed) return fields.outcome;
    peer.awaited.clear();
    const auto before = keys_.contains(key) ? counter(keys_[key]) : 0;
    if (!before) return Outcome::kRefused;
    const std::string text = text_of_sum(*before, code == 4 ? argument : 1);
    const std::int64_t sum = std::stoll(text);
    keys_[key] = text;
    if (code == 4) {
        peer.sent += i64(sum);
        written(key);
    } else if (sum >= argument) {
        peer.sent += '\0';
        written(key);
    } else {
        begin_wait(peer, {key});  // and no wait is released
    }
    return Outcome::kServed;
}

/// CHECK, WAIT, MULTI_GET, MULTI_SET.
ReferenceStore::Outcome ReferenceStore::serve_keys(int code, Peer& peer, Fields& fields) {
    const auto items = fields.list(code == 11);
    if (fields.outcome != Outcome::kServed) return fields.outcome;
    peer.awaited.clear();
    std::set<std::string> missing;
    for (const auto& [key, value] : items) {
        if (!present(key)) missing.insert(key);
    }
    if (code == 5) peer.sent += missing.empty() ? '\0' : '\1';
    if (code == 6 && missing.empty()) peer.sent += '\0';
    if (code == 6 && !missing.empty()) begin_wait(peer, missing);
    for (const auto& [key, value] : items) {
        if (code == 10) peer.sent += bytes(keys_.contains(key) ? keys_[key] : "");
        if (code == 11) {
            keys_[key] = value;
            written(key);
        }
    }
    return Outcome::kServed;
}

/// GETNUMKEYS, CANCEL_WAIT, PING, LIST_KEYS.
ReferenceStore::Outcome ReferenceStore::serve_plain(int code, Peer& peer, Fields& fields) {
    const std::uint64_t nonce = code == 13 ? fields.number(4) : 0;
    if (fields.outcome != Outcome::kServed) return fields.outcome;
    peer.awaited.clear();
    if (code == 7) peer.sent += i64(static_cast<std::int64_t>(keys_.size()));
    if (code == 12) peer.sent += '\1';
    if (code == 13) peer.sent += little_endian(nonce, 4);
    if (code == 17) {
        const std::size_t begin = peer.sent.size();
        peer.sent += i64(static_cast<std::int64_t>(keys_.size()));
        for (const auto& [key, value] : keys_) peer.sent += bytes(key);
        peer.lists.emplace_back(begin, peer.sent.size());
    }
    return Outcome::kServed;
}

void ReferenceStore::begin_wait(Peer& peer, std::set<std::string> names) {
    peer.awaited = std::move(names);
    peer.waits_since = ++waits_;
}

void ReferenceStore::written(const std::string& key) {
    for (auto& [id, peer] : peers_) {
        if (peer.awaited.erase(key) > 0 && peer.awaited.empty()) peer.sent += '\0';
    }
}

void ReferenceStore::pushed(const std::string& name) {
    Peer* first = nullptr;
    for (auto& [id, peer] : peers_) {
        if (peer.awaited.contains(name) && (first == nullptr || peer.waits_since < first->waits_since)) first = &peer;
    }
    if (first == nullptr) return;
    first->awaited.erase(name);
    if (first->awaited.empty()) first->sent += '\0';
}

bool ReferenceStore::take_sent(std::uint64_t connection, std::string actual) {
    Peer& peer = peers_[connection];
    const std::string sent = std::exchange(peer.sent, {});
    const auto lists = std::exchange(peer.lists, {});
    if (actual.size() != sent.size()) return false;
    for (const auto& [begin, end] : lists) {
        std::vector<std::string> keys;
        for (std::size_t at = begin + 8; at < end;) {
            Fields fields(std::string_view(actual).substr(at - 1, end - at + 1), options_.limits);
            keys.push_back(fields.key());
            if (fields.outcome != Outcome::kServed) return false;
            at += fields.at - 1;
        }
        std::ranges::sort(keys);
        std::string sorted = actual.substr(begin, 8);
        for (const std::string& key : keys) sorted += bytes(key);
        actual.replace(begin, end - begin, sorted);
    }
    return actual == sent;
}

std::vector<std::string> ReferenceStore::awaited() const {
    std::vector<std::string> names;
    for (const auto& [id, peer] : peers_) names.insert(names.end(), peer.awaited.begin(), peer.awaited.end());
    return names;
}

}  // namespace ddprun::store::test
