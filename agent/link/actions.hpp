#pragma once
// Defines the actions of the link to the daemon as plain values. link::step() returns them in the order in which
// DaemonLink performs them. Pure.

#include <variant>

#include "agent/group/events.hpp"
#include "common/clock.hpp"
#include "rendezvous/client/pace.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::agent::link {

/// Connects to the daemon, at this pace, until `deadline`. Connected or DialFailed follows.
struct Dial {
    TimePoint deadline;
    client::Pace pace;
};
/// Sends a message on the current connection.
struct Send {
    protocol::AgentMessage message;
};
/// Resets the connection, so that the daemon does not take that for the end of this process. ConnectionEnded follows.
struct Reset {};
/// Passes an event to the worker group.
struct Raise {
    agent::Happening event;
};
/// Ends the daemon that this process holds ready for the case that the one at the port ends.
struct ReleaseStandby {};

/// Looks up the user of a connection of this host, and sends the answer.
struct AnswerVouch {
    protocol::VouchRequest request;
};

using Action = std::variant<Dial, Send, Reset, Raise, ReleaseStandby, AnswerVouch>;

}  // namespace ddprun::agent::link
