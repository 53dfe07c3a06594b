#pragma once
// Defines the events of the link to the daemon as plain values; link::step() decides what follows. Pure.

#include <string>
#include <variant>

#include "common/clock.hpp"
#include "common/error.hpp"
#include "common/ids.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::agent::link {

// ---- from the connection ----

/// The Dial has made a connection.
struct Connected {};
/// The Dial has made no connection in its time, or a server that does not take this node has answered.
struct DialFailed {
    Error error;
};
/// The daemon has sent a message on the current connection.
struct Received {
    protocol::DaemonMessage message;
};
/// The connection has ended, whichever end was the cause. No message of it follows.
struct ConnectionEnded {
    std::string why;  ///< "the rendezvous daemon at …: …"
};

// ---- from the agent ----

/// The link is to connect.
struct Started {};
/// The daemon is to get this report, now or on the next connection.
struct Reported {
    protocol::AgentMessage report;
};
/// Reports about older groups are of no use any more.
struct GroupBegun {
    Generation generation{};
};
/// The agent needs the link no longer. No event for the worker group follows.
struct Closed {};
/// A time that next_deadline() returned may have passed.
struct Tick {};

using Happening =
    std::variant<Connected, DialFailed, Received, ConnectionEnded, Started, Reported, GroupBegun, Closed, Tick>;

/// `now` is the time at which it happened, and the only clock that step() sees.
struct Event {
    TimePoint now;
    Happening what;
};

}  // namespace ddprun::agent::link
