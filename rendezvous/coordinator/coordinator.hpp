#pragma once
// The coordinator decides which nodes take part in a job, with which ranks, what happens after a failure, and how the
// job ends. It is a pure function: time arrives in events, effects leave as actions. The daemon feeds it one event at a
// time, in the order in which things happened, and performs the actions in their order before the next event.

#include <string>
#include <variant>
#include <vector>

#include "rendezvous/coordinator/state.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::coordinator {

// ---- events: what happened

/// A message from a node. The first one of a connection is the Join that names the node.
struct NodeMessage {
    NodeId node;
    AgentMessage message;
    bool beside_daemon = false;  ///< it came from the daemon's own host; counts for a Join
};

/// The connection of `node` has ended. Not reported for connections that were refused, or closed by Disconnect.
struct NodeDisconnected {
    NodeId node;
    bool broken = false;  ///< by an error of the network; false: the agent's end has closed it
};

/// StoreOpened and StoreFailed answer OpenStore.
struct StoreOpened {
    Generation generation{};
    int port = 0;
};
struct StoreFailed {
    Generation generation{};
    std::string why;
};

/// A worker has failed, and the inquiries have requested the flight records. Diagnosed follows.
struct DiagnosisPending {
    Generation generation{};
};
/// The diagnosis of a failure or of a deadline that passed.
struct Diagnosed {
    Generation generation{};
    Diagnosis diagnosis;
};

/// The daemon got a signal to end.
struct StopRequested {
    int signal = 0;
};

/// The program that started the daemon has ended, or needs it no more.
struct StarterEnded {};

/// The program that started the daemon knows that no further node will join, and why: a clause, not empty.
struct NoMoreNodes {
    std::string why;
};

/// An operator (ddpctl) orders something other than the status. Reply answers it in the same step.
struct Ordered {
    Order order;
};

/// Time passes; expected every kTickInterval.
struct Tick {};
inline constexpr std::chrono::milliseconds kTickInterval{100};

using Happening = std::variant<NodeMessage, NodeDisconnected, StoreOpened, StoreFailed, DiagnosisPending, Diagnosed,
                               StopRequested, StarterEnded, NoMoreNodes, Ordered, Tick>;

/// `now` is the time at which it happened, and the only clock that step() sees. It never runs backwards.
struct Event {
    TimePoint now;
    Happening what;
};

// ---- actions: what to do, in order

/// Send over the connection of `node`. An Assignment has no master_addr yet: the daemon fills in the numeric address at
/// which this node reached it. The message is dropped if the connection has just ended.
struct Send {
    NodeId node;
    DaemonMessage message;
    friend bool operator==(const Send&, const Send&) = default;
};

/// Answer the connection whose Join is being handled with Rejected and close it. Another connection may have the name
/// `node`; that one stays.
struct Refuse {
    NodeId node;
    std::string reason;
    bool try_again = false;  ///< as in Rejected
    std::chrono::milliseconds try_for{0};
    friend bool operator==(const Refuse&, const Refuse&) = default;
};

/// Answer the connection whose Ordered is being handled, and close it.
struct Reply {
    Answer answer;
    friend bool operator==(const Reply&, const Reply&) = default;
};

/// Bind an empty store on a port of its own; answer with StoreOpened or StoreFailed.
struct OpenStore {
    Generation generation{};
    friend bool operator==(const OpenStore&, const OpenStore&) = default;
};
/// Close the store of `generation` with all its connections, if it is open.
struct CloseStore {
    Generation generation{};
    friend bool operator==(const CloseStore&, const CloseStore&) = default;
};

/// Deliver what was sent to `node`, then close its connection.
struct Disconnect {
    NodeId node;
    friend bool operator==(const Disconnect&, const Disconnect&) = default;
};

/// Deliver what was sent, close every connection and store, and end with this code: exit_code::kSuccess after any
/// verdict on the job, exit_code::kInfrastructure if agents stayed away, 128 + signal after StopRequested. No event is
/// expected afterwards.
struct EndDaemon {
    int exit_code = 0;
    friend bool operator==(const EndDaemon&, const EndDaemon&) = default;
};

using Action = std::variant<Send, Refuse, Reply, OpenStore, CloseStore, Disconnect, EndDaemon>;

// ---- the function

/// The result of one event.
struct Step {
    State next;
    std::vector<Action> actions;
    std::string reason;    ///< one line for the log, or empty when nothing was decided (a heartbeat, most ticks)
    std::string decision;  ///< the part of it that explains the state of the job; empty: it says what one node did
};

/// Returns the next state and the actions that `event` causes.
[[nodiscard]] Step step(State state, const Event& event);

}  // namespace ddprun::coordinator
