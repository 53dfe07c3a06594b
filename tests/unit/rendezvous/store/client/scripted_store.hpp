#pragma once
// For the client's tests: stores whose answers they choose, and a connected client.

#include <arpa/inet.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "common/endpoint.hpp"
#include "common/system/unique_fd.hpp"
#include "rendezvous/store/client/client.hpp"
#include "rendezvous/store/client/socket.hpp"
#include "tests/catch.hpp"
#include "tests/unit/rendezvous/store/server/server_thread.hpp"

namespace ddprun::store::test {

inline Client connected(const Endpoint& endpoint) { return Client::connect(endpoint, soon()).value(); }

/// A listening socket on loopback; the test answers.
class Listening {
public:
    Listening() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address;
        REQUIRE(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
        REQUIRE(::listen(socket_.get(), 16) == 0);
        REQUIRE(::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
        endpoint_ = {"127.0.0.1", ntohs(address.sin_port)};
    }
    [[nodiscard]] const Endpoint& endpoint() const { return endpoint_; }
    [[nodiscard]] UniqueFd accept() const { return UniqueFd(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC)); }
    /// Makes accept() return nothing.
    void stop() const { ::shutdown(socket_.get(), SHUT_RDWR); }

private:
    UniqueFd socket_;
    Endpoint endpoint_;
};

/// Takes `sizes[i]` bytes and answers `answers[i]`, one after the other, then ends the connection. The first exchange
/// is the client's greeting, whose nonce is sent back.
class ScriptedStore {
public:
    using Script = std::vector<std::pair<std::size_t, std::string>>;
    explicit ScriptedStore(Script script) : thread_([this, script = std::move(script)] { play(script); }) {}
    ~ScriptedStore() { thread_.join(); }
    ScriptedStore(const ScriptedStore&) = delete;
    ScriptedStore& operator=(const ScriptedStore&) = delete;
    [[nodiscard]] const Endpoint& endpoint() const { return listening_.endpoint(); }

private:
    void play(const Script& script) const {
        const UniqueFd peer = listening_.accept();
        std::array<char, 10> greeting{};
        if (!receive_all(peer.get(), greeting, soon())) return;
        if (!send_all(peer.get(), std::string_view(greeting.data() + 6, 4), soon())) return;
        for (const auto& [size, answer] : script) {
            std::string request(size, '\0');
            if (!receive_all(peer.get(), request, soon()) || !send_all(peer.get(), answer, soon())) return;
        }
    }

    Listening listening_;
    std::thread thread_;
};

}  // namespace ddprun::store::test
