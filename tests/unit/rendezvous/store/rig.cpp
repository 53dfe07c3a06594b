#include "tests/unit/rendezvous/store/rig.hpp"

#include <cstdlib>

namespace ddprun::store::test {

std::string hex(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
        out += static_cast<char>(std::strtol(std::string(text.substr(i, 2)).c_str(), nullptr, 16));
    }
    return out;
}

void append_field(std::string& out, const Keys& keys) {
    wire::append_number<std::uint64_t>(out, keys.size());
    for (const std::string& key : keys) wire::append_bytes(out, key);
}

void append_field(std::string& out, const Pairs& pairs) {
    wire::append_number<std::uint64_t>(out, pairs.size());
    for (const auto& [key, value] : pairs) {
        wire::append_bytes(out, key);
        wire::append_bytes(out, value);
    }
}

std::string validate() {
    std::string out(1, '\0');
    wire::append_number(out, wire::kMagic);
    return out;
}

std::string number(std::int64_t value) {
    std::string out;
    wire::append_number(out, value);
    return out;
}

std::string bytes(std::string_view value) {
    std::string out;
    wire::append_bytes(out, value);
    return out;
}

void Rig::connect_modern(std::string_view names) {
    for (const char name : names) send(name, validate());
}

void Rig::send(char name, std::string_view bytes) {
    End& from = end(name);
    if (from.closed) return;
    from.decoder.feed(bytes);
    while (!from.closed && serve_one(name, from)) {
    }
}

std::string Rig::received(char name) { return std::exchange(end(name).received, {}); }

std::string Rig::ask(char name, std::string_view bytes) {
    send(name, bytes);
    return received(name);
}

void Rig::close(char name) {
    engine_.forget(ConnectionId(name));
    end(name).closed = true;
}

Rig::End& Rig::end(char name) { return ends_.try_emplace(name, End{Decoder(options_), {}, false}).first->second; }

bool Rig::serve_one(char name, End& from) {
    const auto next = from.decoder.next();
    if (next && !*next) return false;
    Reply reply;
    const auto applied = next ? engine_.apply(ConnectionId(name), **next, reply) : next.error();
    from.received += reply.text();
    if (!applied) {
        close(name);
        return false;
    }
    for (const ConnectionId other : engine_.released()) end(static_cast<char>(other)).received += wire::kStopWaiting;
    return true;
}

}  // namespace ddprun::store::test
