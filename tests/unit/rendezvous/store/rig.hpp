#pragma once
// For the tests of codec and engine: connections named 'A', 'B', … on one store, without sockets; and requests as
// bytes.

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/store/codec/codec.hpp"
#include "rendezvous/store/codec/wire.hpp"
#include "rendezvous/store/engine/engine.hpp"

namespace ddprun::store::test {

using Keys = std::vector<std::string>;
using Pairs = std::vector<std::pair<std::string, std::string>>;

/// Returns the bytes that `text` has in hexadecimal.
std::string hex(std::string_view text);

inline void append_field(std::string& out, std::string_view bytes) { wire::append_bytes(out, bytes); }
inline void append_field(std::string& out, std::int64_t number) { wire::append_number(out, number); }
void append_field(std::string& out, const Keys& keys);
void append_field(std::string& out, const Pairs& pairs);

/// A request: its code byte, then strings, lists and 64-bit numbers.
template <typename... Fields>
std::string request(int code, const Fields&... fields) {
    std::string out(1, static_cast<char>(code));
    (append_field(out, fields), ...);
    return out;
}
/// In the modern dialect.
template <typename... Fields>
std::string request(RequestKind kind, const Fields&... fields) {
    return request(static_cast<int>(kind), fields...);
}

std::string validate();
/// The reply that ends a wait.
inline const std::string kStop(1, wire::kStopWaiting);
/// Replies: a number, a byte string.
std::string number(std::int64_t value);
std::string bytes(std::string_view value);

class Rig {
public:
    explicit Rig(const Options& options = {}) : options_(options), engine_(options.limits) {}
    Rig(Rig&&) = delete;  // the decoders point to its options

    /// Opens one connection for each letter, in the modern dialect.
    void connect_modern(std::string_view names);
    /// Opens the connection at its first use. Bytes sent after it was closed are lost.
    void send(char name, std::string_view bytes);
    /// Returns the bytes that it has received since the last call.
    [[nodiscard]] std::string received(char name);
    /// send(), then received().
    [[nodiscard]] std::string ask(char name, std::string_view bytes);
    [[nodiscard]] bool closed(char name) const { return ends_.at(name).closed; }
    void close(char name);

    [[nodiscard]] Engine& engine() { return engine_; }

private:
    struct End {
        Decoder decoder;
        std::string received;
        bool closed = false;
    };
    End& end(char name);
    bool serve_one(char name, End& end);

    Options options_;
    Engine engine_;
    std::map<char, End> ends_;
};

}  // namespace ddprun::store::test
