#pragma once
// Fleet: many client connections to one server, driven from one thread by one epoll loop, so that the server has a core
// of its own. A Script says what each connection asks next.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/system/unique_fd.hpp"
#include "tests/bench/store/protocol.hpp"
#include "tests/bench/store/scanner.hpp"

namespace ddprun::bench {

class Script {
public:
    virtual ~Script() = default;
    /// The next request of this connection; null: it has no more. Called when everything before it was answered, or
    /// sent when that was not to be awaited.
    virtual const Request* next(std::size_t connection) = 0;
    /// An awaited request was answered after `ns`.
    virtual void answered(std::size_t /*connection*/, const Request& /*request*/, std::uint64_t /*ns*/) {}
    /// All answers so far have come and next() returned null for this connection.
    virtual void finished(std::size_t /*connection*/) {}
};

class Fleet {
public:
    /// Connects, and returns when the server has answered on every connection. `send_bytes`: the most that one
    /// connection sends before the others have their turn.
    Fleet(const Protocol& protocol, std::uint16_t port, std::size_t connections, std::size_t send_bytes = 1 << 20);

    [[nodiscard]] std::size_t size() const { return connections_.size(); }
    /// Until every connection has finished. Throws when the server ends a connection, or is silent for long.
    void run(Script& script);
    /// Sends without waiting for any answer.
    void post(std::size_t connection, const Request& request);

private:
    struct Connection {
        UniqueFd fd;
        ReplyScanner scanner;
        const Request* sending = nullptr;
        const Request* awaited = nullptr;
        std::size_t sent_bytes = 0;
        std::uint64_t started = 0;
        bool wants_write = false;
        bool running = false;
        bool exhausted = false;
    };

    void begin_next(std::size_t index);
    [[nodiscard]] bool send_some(std::size_t index);
    void receive_some(std::size_t index);
    void want_write(std::size_t index, bool wanted);
    void handle(std::size_t index, std::uint32_t events);

    std::size_t send_bytes_;
    UniqueFd epoll_;
    std::vector<Connection> connections_;
    std::vector<char> buffer_;
    Script* script_ = nullptr;
    std::size_t running_ = 0;
};

}  // namespace ddprun::bench
