#pragma once
// The server on the test's own thread and clock, step by step, over real sockets.

#include <chrono>
#include <memory>

#include "rendezvous/store/epoll_server.hpp"
#include "tests/unit/store/rig.hpp"
#include "tests/unit/store/server_thread.hpp"

namespace ddprun::store::test {

struct Server {
    explicit Server(const Limits& limits = {}) {
        Options options;
        options.limits = limits;
        server = EpollServer::listen("127.0.0.1", 0, options, [this] { return now; }).value();
        endpoint = {"127.0.0.1", server->port()};
    }
    /// Serves until there is nothing to do. So many turns it took.
    int settle() {
        int turns = 0;
        while (server->serve(std::chrono::milliseconds(1)) > 0 || server->more()) ++turns;
        return turns;
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
