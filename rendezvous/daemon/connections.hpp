#pragma once
// Connections: owns the connections of agents (by node) and of inspectors (ddpctl), and those that are being closed.
// Used by the Daemon alone, on the io_context's one thread.

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cassert>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "common/clock.hpp"
#include "rendezvous/diagnosis/inquiry/state.hpp"
#include "rendezvous/protocol/messages.hpp"
#include "rendezvous/transport/channel.hpp"

namespace ddprun::daemon {

/// The maximum number of ddpctl connections at one time.
inline constexpr std::size_t kMaxInspectors = 16;
/// An inspector that has sent no request for this time is disconnected, to make room for others.
inline constexpr std::chrono::seconds kInspectorIdle{30};

using ChannelPtr = std::shared_ptr<transport::Channel>;

class Connections {
public:
    /// `store_address`: that of the stores, if it is not the one at which each node reaches this daemon.
    Connections(boost::asio::any_io_executor executor, std::optional<boost::asio::ip::address> store_address);

    // ---- agents

    /// Sets the connection whose Join, or order of ddpctl, is decided on next. admit() or answer_asking() follows.
    void set_asking(ChannelPtr channel) { asking_ = std::move(channel); }
    /// Makes the asking connection that of `node`, and drops an older one, whose other end is gone.
    void admit(const protocol::NodeId& node) {
        assert(asking_);  // a Welcome answers the pending Join
        if (const auto older = std::exchange(agents_[node], std::move(asking_))) older->abort();
    }
    void answer_asking(const protocol::DaemonMessage& answer) { answer_and_close(std::move(asking_), answer); }

    [[nodiscard]] bool is_agent(const protocol::NodeId& node, const ChannelPtr& channel) const;
    /// Sends to that node, if it is connected. Fills in an Assignment's master_addr: the stores' address, by default
    /// that at which the node reached this daemon.
    void send(const protocol::NodeId& node, const protocol::DaemonMessage& message);
    /// Delivers what was sent to that node, then closes its connection.
    void disconnect(const protocol::NodeId& node);
    /// Drops the connection of that node at once.
    void drop(const protocol::NodeId& node);

    // ---- inspectors

    /// Adds an inspector and returns its id; nothing when there are kMaxInspectors already.
    [[nodiscard]] std::optional<diagnosis::InspectorId> add_inspector(ChannelPtr channel, TimePoint now);
    /// Notes that the inspector has sent another request.
    void touch(diagnosis::InspectorId id, TimePoint now) { inspectors_.at(id).asked = now; }
    void send(diagnosis::InspectorId id, const protocol::DaemonMessage& message);
    void drop(diagnosis::InspectorId id);
    /// Ends the connections of inspectors that have been idle for kInspectorIdle; the coroutine of each drops it.
    void end_idle_inspectors(TimePoint now);

    // ---- any

    /// Sends `answer` on a connection that is neither an agent's nor an inspector's, then closes it.
    void answer_and_close(ChannelPtr channel, const protocol::DaemonMessage& answer);
    /// Delivers what was sent and closes everything. Each connection takes at most a second.
    [[nodiscard]] boost::asio::awaitable<void> close_all();

private:
    struct Inspector {
        ChannelPtr channel;
        TimePoint asked;  ///< the last time
    };
    /// The connections that are being closed. The coroutines that close them share it, and may outlive this object.
    struct Closing {
        int channels = 0;
        boost::asio::steady_timer none_left;  ///< never expires; cancelled when `channels` falls to 0
    };
    void close_later(ChannelPtr channel);

    boost::asio::any_io_executor executor_;
    std::optional<boost::asio::ip::address> store_address_;
    std::unordered_map<protocol::NodeId, ChannelPtr> agents_;  // each heartbeat looks into it three times
    ChannelPtr asking_;
    std::map<diagnosis::InspectorId, Inspector> inspectors_;
    std::uint64_t last_inspector_ = 0;
    std::shared_ptr<Closing> closing_;
};

}  // namespace ddprun::daemon
