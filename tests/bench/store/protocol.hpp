#pragma once
// What a server is asked, in its own protocol: each request is made once, before the clock runs, with the shape of the
// answer beside it. The benchmark's loop (fleet.hpp) only moves bytes.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::bench {

/// The shape of an answer, for finding its end.
struct Expect {
    enum class Kind : std::uint8_t {
        kRaw,    ///< `count` bytes
        kBytes,  ///< `count` byte strings, each after its u64 length
        kResp,   ///< `count` replies of redis
    };
    Kind kind = Kind::kRaw;
    std::uint64_t count = 0;
};

struct Request {
    std::string bytes;
    std::vector<Expect> replies;
    /// The next request of the connection waits for these replies. False: it follows at once.
    bool await = true;
    /// How many operations this request counts for.
    std::uint64_t operations = 1;
};

/// Requests one after the other in one send.
[[nodiscard]] Request join(std::span<const Request> requests);

class Protocol {
public:
    virtual ~Protocol() = default;
    [[nodiscard]] virtual std::string greeting() const { return {}; }
    [[nodiscard]] virtual Request add(std::string_view key) const = 0;
    /// A request whose answer is sent only when everything before it was served; may have no effect.
    [[nodiscard]] virtual Request sync() const { return add("/sync"); }
    [[nodiscard]] virtual Request set(std::string_view key, std::string_view value) const = 0;
    /// Answered as soon as `key` is there, which it is.
    [[nodiscard]] virtual Request check(std::string_view key) const = 0;
    /// `value_bytes`: what the answer will hold.
    [[nodiscard]] virtual Request get(std::string_view key, std::size_t value_bytes) const = 0;
    /// Stays unanswered until release().
    [[nodiscard]] virtual Request block(std::string_view key) const { return check(key); }
    /// Answers `waiters` connections that block on `key`, and those that will.
    [[nodiscard]] virtual Request release(std::string_view key, std::size_t waiters) const = 0;
    /// Empty when the protocol has no such request.
    [[nodiscard]] virtual Request multi_get(std::span<const std::string> keys, std::size_t value_bytes) const = 0;
    /// Counts this client in and blocks until `clients` are. Empty when the protocol has no such request.
    [[nodiscard]] virtual Request barrier(std::string_view /*key*/, std::size_t /*clients*/) const { return {}; }
};

[[nodiscard]] std::unique_ptr<Protocol> make_echo_protocol();
[[nodiscard]] std::unique_ptr<Protocol> make_plain_protocol();
[[nodiscard]] std::unique_ptr<Protocol> make_gate_protocol();
[[nodiscard]] std::unique_ptr<Protocol> make_redis_protocol();
[[nodiscard]] std::unique_ptr<Protocol> make_old_tcpstore_protocol();
[[nodiscard]] std::unique_ptr<Protocol> make_modern_tcpstore_protocol();

}  // namespace ddprun::bench
