#pragma once
// Sessions: owns the control port and serves its connections, each by a coroutine, from the first message to the end.
// Turns what happens on them into events of the daemon. Owned by the Daemon; lives on the io_context's one thread.

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "rendezvous/daemon/connections.hpp"
#include "rendezvous/daemon/control_port.hpp"
#include "rendezvous/daemon/decisions.hpp"
#include "rendezvous/daemon/store_clients.hpp"
#include "rendezvous/daemon/vouching.hpp"

namespace ddprun::daemon {

class Sessions {
public:
    using Handle = std::function<void(DaemonHappening)>;

    /// `connections`, `decisions` and `stores` outlive this object. `members_only`: of other hosts, stores serve those
    /// of the group's members alone; `vouch`: these only as Vouching says. `handle` handles an event and all that
    /// follows from it.
    Sessions(boost::asio::any_io_executor executor, ControlPort port, Connections& connections,
             const Decisions& decisions, GenerationStores& stores, bool members_only, bool vouch, Handle handle);

    [[nodiscard]] boost::asio::ip::tcp::endpoint endpoint() const { return port_.endpoint(); }

    /// Serves connections until close(). Their coroutines keep `owner` alive, which owns this object.
    void start(std::weak_ptr<void> owner);
    /// Returns which other hosts a store serves, by their numeric address; empty: all. Valid while this object is.
    [[nodiscard]] std::function<bool(const std::string& address)> store_admission();
    /// Returns the function that screens clients of the store of `generation`; empty: none is needed. Valid while this
    /// object is.
    [[nodiscard]] std::function<void(UniqueFd socket, const std::string& address)> store_screen(Generation generation);
    /// Has nodes reminded of the clients that they have to vouch for.
    void remind(TimePoint now) { vouching_.remind(now); }
    /// Accepts all connections that wait at the control port. Called before a store is opened, which they must not
    /// reach: a worker of an older generation may have made them.
    void end_accepting_for_old_stores();
    /// Closes the control port. Connections that have sent no first message yet are not served any more.
    void close();

private:
    using tcp = boost::asio::ip::tcp;

    void spawn(boost::asio::awaitable<void> task);
    boost::asio::awaitable<void> accept_connections();
    boost::asio::awaitable<void> serve(Newcomer newcomer, std::optional<Generation> generation);
    boost::asio::awaitable<void> serve_agent(protocol::Join join, ChannelPtr channel, std::string peer,
                                             std::string address);
    boost::asio::awaitable<void> serve_inspector(protocol::Inspect request, ChannelPtr channel);
    void serve_order(const protocol::Order& order, ChannelPtr channel);
    bool refuse_other_version(int version, const ChannelPtr& channel);

    boost::asio::any_io_executor executor_;
    ControlPort port_;
    Connections& connections_;
    const Decisions& decisions_;
    const bool vouch_;
    Vouching vouching_;
    StoreClients store_clients_;
    transport::JobLines job_lines_;
    Handle handle_;
    std::weak_ptr<void> owner_;
    bool closed_ = false;
};

}  // namespace ddprun::daemon
