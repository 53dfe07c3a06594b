#pragma once
// The server on the test's own thread and clock, step by step, over real sockets.

#include <chrono>
#include <memory>

#include "rendezvous/store/server/epoll_server.hpp"
#include "tests/unit/rendezvous/store/rig.hpp"
#include "tests/unit/rendezvous/store/server/server_thread.hpp"

namespace ddprun::store::test {

struct Server {
    explicit Server(const Limits& limits = {}) {
        Options options;
        options.limits = limits;
        server = EpollServer::listen("127.0.0.1", 0, options, [this] { return now; }).value();
        endpoint = {"127.0.0.1", server->port()};
    }
    /// Serves until no connection is ready. Returns the number of rounds.
    int settle() {
        int rounds = 0;
        while (server->serve(std::chrono::milliseconds(1)) > 0 || server->has_ready()) ++rounds;
        return rounds;
    }
    RawPeer connect() {
        RawPeer peer(endpoint);
        peer.send(validate());
        settle();
        return peer;
    }
    void pass(std::chrono::seconds time) {
        now += time;
        settle();
    }

    TimePoint now{std::chrono::hours(1000)};
    std::unique_ptr<EpollServer> server;
    Endpoint endpoint;
};

}  // namespace ddprun::store::test
