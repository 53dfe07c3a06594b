#pragma once
// Daemon: the loop around the coordinator and the inquiries. It turns what happens at sockets and timers into events,
// and performs the actions of their steps. It owns the sessions, their connections and the stores. Lives on the
// io_context's one thread; the program around it is program.cpp.

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <memory>
#include <optional>
#include <string>

#include "common/error.hpp"
#include "rendezvous/coordinator/coordinator.hpp"
#include "rendezvous/daemon/connections.hpp"
#include "rendezvous/daemon/control_port.hpp"
#include "rendezvous/daemon/decisions.hpp"
#include "rendezvous/daemon/sessions.hpp"
#include "rendezvous/daemon/stores.hpp"

namespace ddprun::daemon {

inline constexpr std::uint16_t kDefaultPort = 29400;

/// The settings of the daemon, which ddprund makes from its command line.
struct DaemonConfig {
    boost::asio::ip::address bind = boost::asio::ip::address_v4::loopback();
    std::uint16_t port = kDefaultPort;                      ///< 0: a free one
    std::optional<boost::asio::ip::address> store_address;  ///< of the stores; empty: that of `bind`
    coordinator::Config job;
    std::chrono::milliseconds handshake_time{2'000};  ///< from the connection to the Join
    transport::Security security;                     ///< of connections from other hosts
    bool store_vouch = false;  ///< clients of stores on other hosts are confirmed by the agent there; needs
                               ///< have_one_address()
};

/// Returns whether workers reach the stores from the addresses from which their agents reach the daemon, so that the
/// stores can be closed to other hosts: both have one destination.
[[nodiscard]] bool have_one_address(const DaemonConfig& config);

class Daemon : public std::enable_shared_from_this<Daemon> {
public:
    /// Binds the control port. Errors: kInUse or kSystem, with the address and what to do.
    [[nodiscard]] static Result<std::shared_ptr<Daemon>> listen(const boost::asio::any_io_executor& executor,
                                                                DaemonConfig config);

    [[nodiscard]] boost::asio::ip::tcp::endpoint endpoint() const { return sessions_.endpoint(); }

    /// Serves until the coordinator ends the daemon. By then every agent has its final message and every port is
    /// closed. Returns the exit code of ddprund: see coordinator::EndDaemon.
    [[nodiscard]] boost::asio::awaitable<int> run();

    /// Ends run() within about a second. Agents get the verdict that the job was stopped.
    void stop(int signal);
    /// Ends run() soon if no agent has joined yet: the starter's agent never will.
    void starter_ended();
    /// Reports that no further node will join; `why` is a clause for the verdict. The job ends as soon as it has too
    /// few nodes.
    void no_more_nodes(std::string why);

private:
    Daemon(boost::asio::any_io_executor executor, ControlPort port, DaemonConfig config);

    boost::asio::awaitable<void> tick();
    void handle(DaemonHappening what);
    void log(const DaemonStep& step);
    void perform(const DaemonAction& action);
    void send(const coordinator::Send& action);
    void warn_of_exposure();
    void open_store(Generation generation);
    void end(int exit_code);

    boost::asio::any_io_executor executor_;
    const DaemonConfig config_;
    Decisions decisions_;
    Connections connections_;
    GenerationStores stores_;
    Sessions sessions_;

    std::optional<int> exit_code_;  ///< set: run() is about to return
    boost::asio::steady_timer tick_timer_;
    std::string last_reason_;
    bool exposure_reported_ = false;
    Generation logged_generation_{};  ///< the newest whose members were logged
};

}  // namespace ddprun::daemon
