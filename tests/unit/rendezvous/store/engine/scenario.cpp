#include "tests/unit/rendezvous/store/engine/scenario.hpp"

#include <algorithm>
#include <vector>

#include "rendezvous/store/codec/wire.hpp"

namespace ddprun::store::test {
namespace {

constexpr std::size_t kAll = ~std::size_t{0};
constexpr int kLastCode = 18;  ///< of the modern dialect

std::string counted(std::string_view text) {
    std::string out;
    wire::append_bytes(out, text);
    return out;
}

std::string word(std::int64_t number) {
    std::string out;
    wire::append_number(out, number);
    return out;
}

/// The code that an older dialect has for the request; below 0: it has none.
int older_code(OlderDialect older, int code) {
    if (code <= 7) return code - 1;
    if (older == OlderDialect::kV1_13) return code == 8 ? 8 : -1;
    return code <= 12 ? code - 1 : -1;
}

}  // namespace

Limits Scenario::tight_limits() {
    Limits limits;
    limits.key_bytes = 100;
    limits.value_bytes = 40'000;
    limits.keys_per_request = 8;
    limits.request_bytes = 60'000;
    return limits;
}

Scenario::Scenario(Choices& choices, const Options& options)
    : choices_(choices), options_(options), reference_(options), server_(options) {
    for (Client& client : clients_) connect(client);
}

void Scenario::connect(Client& client) {
    client = {};
    client.connection = ++connections_;
    if (options_.older_dialect != OlderDialect::kNone && choices_.one_in(3)) client.older = options_.older_dialect;
    if (client.older == OlderDialect::kNone) client.pending = std::string("\x00\xce\xf7\x85\x3c", 5);
}

void Scenario::leave(Client& client) {
    server_.close(client.connection);
    reference_.close(client.connection);
    take_replies(client, kAll);
    server_.remove(client.connection);
    reference_.remove(client.connection);
    connect(client);
}

Scenario::Client& Scenario::somebody() {
    Client* client = nullptr;
    // A client that waits mostly continues to wait.
    for (int tries = 0; tries < 4; ++tries) {
        client = &clients_[choices_.below(static_cast<std::uint32_t>(clients_.size()))];
        if (!reference_.is_waiting(client->connection)) break;
    }
    return *client;
}

void Scenario::step() {
    Client& client = somebody();
    if (choices_.one_in(100)) return leave(client);
    client.pending += choices_.one_in(100) ? nonsense(client) : request(client);
    if (!choices_.one_in(4)) arrive(client);  // otherwise it is pipelined with the next one
    compare();
}

std::string Scenario::request(const Client& client) {
    for (;;) {
        const int code = 1 + static_cast<int>(choices_.below(kLastCode));
        const int spoken = client.older == OlderDialect::kNone ? code : older_code(client.older, code);
        if (spoken >= 0) return static_cast<char>(spoken) + fields(code);
    }
}

std::string Scenario::fields(int code) {
    switch (code) {
        case 1:
        case 14: return counted(key()) + counted(value());
        case 9: {
            const std::string name = key();
            return counted(name) + counted(choices_.one_in(8) ? value_that_fills(name) : value());
        }
        case 2: return counted(key()) + counted(value()) + counted(value());
        case 4: return counted(key()) + word(static_cast<std::int64_t>(choices_.below(4)) - 2);
        case 5:
        case 6:
        case 10: return list(false);
        case 11: return list(true);
        case 7:
        case 12:
        case 17: return "";
        case 13: return std::string("\x01\x00\xfe\x7f", 4);
        case 18: return counted(key()) + word(choices_.below(4));
        default: return counted(key());
    }
}

std::string Scenario::key() {
    switch (const std::uint32_t choice = choices_.below(12)) {
        case 0: return "";
        case 1: return std::string("\0\xff/", 3);
        case 2: return std::string(options_.limits.key_bytes, 'k');
        default: return std::string("/") + static_cast<char>('a' + choice % 6);
    }
}

std::string Scenario::value() {
    static const std::string kLongText(70'000, 'v');
    switch (const std::uint32_t choice = choices_.below(40)) {
        case 0: return "abc";
        case 1: return " \t+12x";
        case 2: return "9223372036854775807";
        case 3: return "-9223372036854775808";
        case 4: return "9223372036854775808";
        case 5: return std::string("7\0", 2) + "7";
        case 6: {
            const auto most = static_cast<std::uint32_t>(std::min(kLongText.size(), options_.limits.value_bytes));
            const std::uint32_t half = most / 2;  // two of them together are just not too long
            return kLongText.substr(0, choices_.one_in(2) ? half + choices_.below(2) : choices_.below(most + 1));
        }
        case 7: return kLongText.substr(0, kLargeBytes - 1 + choices_.below(3));
        case 8:
        case 9:
        case 10:
        case 11: return "";
        default: return std::to_string(choice - 12);
    }
}

/// To append to what the key holds: as long as the limit allows, or one byte more.
std::string Scenario::value_that_fills(const std::string& key) {
    const auto found = reference_.keys().find(key);
    if (found == reference_.keys().end() || options_.limits.value_bytes > 100'000) return value();
    return std::string(options_.limits.value_bytes - found->second.size() + choices_.below(2), 'f');
}

std::string Scenario::list(bool with_values) {
    std::uint32_t count = choices_.below(5);
    if (count == 4) count = static_cast<std::uint32_t>(std::min<std::size_t>(16, options_.limits.keys_per_request));
    std::string out = word(count);
    for (std::uint32_t i = 0; i < count; ++i) {
        out += counted(key());
        if (with_values) out += counted(choices_.one_in(8) ? value() : "1");
    }
    return out;
}

/// Returns bytes that no client sends: an unknown code, lengths at a limit and over it, any bytes.
std::string Scenario::nonsense(const Client& client) {
    const Limits& limits = options_.limits;
    const bool modern = client.older == OlderDialect::kNone;
    const char set = modern ? 1 : 0;
    switch (choices_.below(6)) {
        case 0: return std::string(1, static_cast<char>(choices_.below(256)));
        case 1: return std::string(1, modern ? '\x13' : '\x07') + counted("/a");  // WATCH_KEY in 1.13
        case 2: return set + counted(std::string(limits.key_bytes + choices_.below(2), 'k')) + counted("");
        case 3: return set + counted("/a") + word(std::int64_t{1} << 62);
        case 4: return static_cast<char>(set + 5) + word(static_cast<std::int64_t>(limits.keys_per_request) + 1);
        default: break;
    }
    if (choices_.one_in(2) && limits.request_bytes < 100'000) {
        // COMPARE_SET: its code, its key and three lengths are 27 bytes.
        const std::size_t both = limits.request_bytes - 27 + choices_.below(2);
        return static_cast<char>(set + 1) + counted("/a") + counted(std::string(both / 2, 'e')) +
               counted(std::string(both - both / 2, 'd'));
    }
    std::string out(1 + choices_.below(40), '\0');
    for (char& byte : out) byte = static_cast<char>(choices_.below(256));
    return out;
}

void Scenario::arrive(Client& client) {
    const std::size_t max_requests = choices_.one_in(8) ? choices_.below(3) : kAll;
    switch (choices_.below(8)) {
        case 0:
        case 1:
        case 2: return arrive(client, client.pending.size(), max_requests);
        case 3:
            // Byte by byte: only the first part of a large value.
            for (int i = 0; i < 50 && !client.pending.empty(); ++i) arrive(client, 1, kAll);
            return arrive_all(client);
        case 4:
            while (!client.pending.empty()) {
                const auto size = static_cast<std::uint32_t>(client.pending.size());
                arrive(client, 1 + size / 256 + choices_.below(std::max(32u, size / 2)), kAll);
            }
            return;
        default: break;
    }
    const std::size_t bytes = choices_.below(static_cast<std::uint32_t>(client.pending.size() + 1));
    arrive(client, bytes, max_requests);
}

void Scenario::arrive(Client& client, std::size_t bytes, std::size_t max_requests) {
    const std::uint64_t connection = client.connection;
    if (server_.is_closed(connection)) return client.pending.clear();
    if (server_.more(connection)) {
        server_.serve(connection, max_requests);
        reference_.serve(connection, max_requests);
        return;
    }
    bytes = std::min(bytes, client.pending.size());
    std::string arrived = client.pending.substr(0, bytes);
    std::size_t taken = choices_.one_in(2) ? server_.receive_in_place(connection, arrived, max_requests) : 0;
    if (taken == 0) {
        server_.receive(connection, arrived, max_requests);
        taken = arrived.size();
    }
    arrived.resize(taken);
    client.pending.erase(0, taken);
    reference_.receive(connection, arrived);
    reference_.serve(connection, max_requests);
}

void Scenario::arrive_all(Client& client) {
    while (!client.pending.empty() || server_.more(client.connection)) arrive(client, client.pending.size(), kAll);
}

void Scenario::take_replies(Client& client, std::size_t max_bytes) {
    const std::uint64_t connection = client.connection;
    expect(client.received.size() + server_.unsent_bytes(connection) == reference_.sent_bytes(connection),
           "more or less is replied than the protocol asks for");
    client.received += server_.send(connection, max_bytes);
    if (server_.unsent_bytes(connection) > 0) return;
    expect(reference_.take_sent(connection, client.received), "the reply is another one than the protocol asks for");
    client.received.clear();
}

void Scenario::compare() {
    for (Client& client : clients_) {
        const bool closed = server_.is_closed(client.connection);
        expect(closed == reference_.is_closed(client.connection),
               closed ? "a connection is closed that should not be" : "a connection should be closed and is not");
        if (closed) {
            leave(client);
            continue;
        }
        if (client.received.empty() && server_.unsent_bytes(client.connection) == 0 &&
            reference_.sent_bytes(client.connection) == 0) {
            continue;
        }
        take_replies(client, choices_.one_in(8) ? choices_.below(64) : kAll);
    }
    expect(server_.broken().empty(), server_.broken());

    std::size_t bytes = 0;
    std::size_t block_bytes = 0;
    const auto add = [&](std::size_t name, std::size_t value, std::size_t allowance) {
        bytes += name + value + allowance;
        if (value >= kLargeBytes) block_bytes += value;  // and room to grow
    };
    for (const auto& [key, value] : reference_.keys()) add(key.size(), value.size(), kEntryBytes);
    for (const auto& [name, elements] : reference_.queues()) {
        for (const std::string& element : elements) add(name.size(), element.size(), kElementBytes);
    }
    const std::vector<std::string> awaited = reference_.awaited();
    for (const std::string& name : awaited) add(name.size(), 0, kAwaitedNameBytes);
    const Engine& engine = server_.engine();
    expect(engine.key_count() == reference_.keys().size(), "the number of keys is wrong");
    expect(engine.waiter_count() == awaited.size(), "the number of waiters is wrong");
    expect(engine.bytes() == bytes, "the bytes of the store are miscounted");
    expect(engine.block_bytes() >= block_bytes && engine.block_bytes() <= server_.block_memory(),
           "the memory of large values is miscounted");
}

void Scenario::finish() {
    for (Client& client : clients_) {
        arrive_all(client);
        compare();
        leave(client);
    }
    expect(server_.engine().block_bytes() == server_.block_memory(), "memory of large values has no owner");
    delete_everything();
    for (Client& client : clients_) leave(client);
    expect(server_.engine().key_count() == 0, "a key is left");
    expect(server_.engine().waiter_count() == 0, "a connection still waits");
    expect(server_.engine().bytes() == 0, "bytes are left in an empty store");
    expect(server_.engine().block_bytes() == 0, "bytes of large values are left in an empty store");
    expect(server_.block_memory() == 0, "memory of large values is left in an empty store");
}

void Scenario::delete_everything() {
    Client& client = clients_[0];
    client.older = OlderDialect::kNone;
    client.pending = std::string("\x00\xce\xf7\x85\x3c", 5);
    for (const auto& [key, value] : reference_.keys()) client.pending += '\x08' + counted(key);
    for (const auto& [name, elements] : reference_.queues()) {
        for (std::size_t i = 0; i < elements.size(); ++i) client.pending += '\x0f' + counted(name);
    }
    arrive_all(client);
    compare();
}

void Scenario::expect(bool holds, std::string_view otherwise) {
    if (!holds && broken_.empty()) broken_ = otherwise;
}

}  // namespace ddprun::store::test
