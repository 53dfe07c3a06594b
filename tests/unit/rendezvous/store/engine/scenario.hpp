#pragma once
// Scenario: up to eight clients of one store, whose actions a source of choices selects: any request, in any pieces,
// several at once, whether they wait or not; some disconnect. The store is compared with the reference after every
// step. The property test chooses at random, the fuzzer by its input.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "rendezvous/store/codec/limits.hpp"
#include "tests/unit/rendezvous/store/engine/reference_store.hpp"
#include "tests/unit/rendezvous/store/engine/socketless_server.hpp"

namespace ddprun::store::test {

class Choices {
public:
    virtual ~Choices() = default;
    /// Returns a number below `bound`, which is not 0.
    [[nodiscard]] virtual std::uint32_t below(std::uint32_t bound) = 0;
    [[nodiscard]] bool one_in(std::uint32_t bound) { return below(bound) == 0; }
};

class Scenario {
public:
    Scenario(Choices& choices, const Options& options);

    /// Lets one client send one more request, and some of the bytes that clients have sent arrive.
    void step();
    /// Sends, receives and deletes everything, and ends all connections. Then the store must hold nothing.
    void finish();
    /// Returns what is wrong; empty if nothing is.
    [[nodiscard]] const std::string& broken() const { return broken_; }

    /// Limits that requests of a scenario reach now and then.
    [[nodiscard]] static Limits tight_limits();

private:
    struct Client {
        std::uint64_t connection = 0;
        OlderDialect older = OlderDialect::kNone;  ///< kNone: it speaks the modern dialect
        std::string pending;                       ///< sent, and not arrived yet
        std::string received;
    };

    void connect(Client& client);
    void leave(Client& client);
    Client& somebody();
    [[nodiscard]] std::string request(const Client& client);
    [[nodiscard]] std::string fields(int code);
    [[nodiscard]] std::string key();
    [[nodiscard]] std::string value();
    [[nodiscard]] std::string value_that_fills(const std::string& key);
    [[nodiscard]] std::string nonsense(const Client& client);
    [[nodiscard]] std::string list(bool with_values);

    void arrive(Client& client);
    void arrive(Client& client, std::size_t bytes, std::size_t max_requests);
    void arrive_all(Client& client);
    void take_replies(Client& client, std::size_t max_bytes);
    void compare();
    void delete_everything();
    void expect(bool holds, std::string_view otherwise);

    Choices& choices_;
    Options options_;
    ReferenceStore reference_;
    SocketlessServer server_;
    std::array<Client, 8> clients_;
    std::uint64_t connections_ = 0;
    std::string broken_;
};

}  // namespace ddprun::store::test
