#pragma once
// Sessions: owns the control port and serves its connections, each by a coroutine, from the first message to the end.
// Turns what happens on them into events of the daemon. Owned by the Daemon; lives on the io_context's one thread.

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <functional>
#include <memory>
#include <string>

#include "rendezvous/daemon/connections.hpp"
#include "rendezvous/daemon/control_port.hpp"
#include "rendezvous/daemon/decisions.hpp"

namespace ddprun::daemon {

class Sessions {
public:
    using Handle = std::function<void(DaemonHappening)>;

    /// `connections` and `decisions` outlive this object. `handle` handles an event and all that follows from it.
    Sessions(boost::asio::any_io_executor executor, ControlPort port, Connections& connections,
             const Decisions& decisions, Handle handle);

    [[nodiscard]] boost::asio::ip::tcp::endpoint endpoint() const { return port_.endpoint(); }

    /// Serves connections until close(). Their coroutines keep `owner` alive, which owns this object.
    void start(std::weak_ptr<void> owner);
    /// Closes the control port. Connections that have sent no first message yet are not served any more.
    void close();

private:
    using tcp = boost::asio::ip::tcp;

    void spawn(boost::asio::awaitable<void> task);
    boost::asio::awaitable<void> accept_connections();
    boost::asio::awaitable<void> serve(tcp::socket socket);
    boost::asio::awaitable<void> serve_agent(protocol::Join join, ChannelPtr channel, std::string peer);
    boost::asio::awaitable<void> serve_inspector(protocol::Inspect request, ChannelPtr channel);

    boost::asio::any_io_executor executor_;
    ControlPort port_;
    Connections& connections_;
    const Decisions& decisions_;
    Handle handle_;
    std::weak_ptr<void> owner_;
    bool closed_ = false;
};

}  // namespace ddprun::daemon
