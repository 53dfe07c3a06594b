#pragma once
// The coordinator: who takes part in a job, with which ranks, what happens after a failure, and how the job ends.
// A pure function: time arrives in events, effects leave as actions. The daemon feeds it one event at a time, in the
// order in which things happened, and performs the actions in their order before the next event.

#include <string>
#include <variant>
#include <vector>

#include "rendezvous/coordinator/messages.hpp"
#include "rendezvous/coordinator/state.hpp"

namespace ddprun::coordinator {

// ---- events: what happened. `now` never runs backwards.

/// A message from the node that its connection's Join named; the first one is that Join.
struct NodeMessage {
    NodeId node;
    AgentMessage message;
    TimePoint now;
};

/// The connection of `node` ended by itself. Not for connections that were refused, or closed by Disconnect.
struct NodeDisconnected {
    NodeId node;
    TimePoint now;
};

/// Answers to OpenStore.
struct StoreOpened {
    Generation generation{};
    int port = 0;
    TimePoint now;
};
struct StoreFailed {
    Generation generation{};
    std::string why;
    TimePoint now;
};

/// A worker has failed, and the boards are asked who kept it waiting, or who waited for it: `Judged` will tell.
struct Judging {
    Generation generation{};
    TimePoint now;
};
struct Judged {
    Generation generation{};
    std::string text;  ///< one line; empty: they did not tell
    TimePoint now;
    std::optional<Rank> dead = {};  ///< it tells how this worker ended, and is no matter to the failure of another one
    std::string detail = {};        ///< of `dead`: the same where rank and end are named already
    std::string hint = {};          ///< what to do next
    std::vector<int> blamed = {};   ///< ranks whose fault it is; empty: not known
};

/// Time passes; expected every kTickInterval.
struct Tick {
    TimePoint now;
};
inline constexpr std::chrono::milliseconds kTickInterval{100};

using Event = std::variant<NodeMessage, NodeDisconnected, StoreOpened, StoreFailed, Judging, Judged, Tick>;

// ---- actions: what to do, in order

/// To the connection of `node`. An Assignment has no master_addr yet: the daemon fills in the numeric address at which
/// this node reached it. Dropped when the connection has just ended.
struct Send {
    NodeId node;
    DaemonMessage message;
    friend bool operator==(const Send&, const Send&) = default;
};

/// Answer the very connection whose Join is being handled with Rejected and close it. `node` is what it called
/// itself: it may be the name of another connection, which stays.
struct Refuse {
    NodeId node;
    std::string reason;
    bool try_again = false;  ///< as in Rejected
    friend bool operator==(const Refuse&, const Refuse&) = default;
};

/// Bind an empty store on a port of its own; answer with StoreOpened or StoreFailed.
struct OpenStore {
    Generation generation{};
    friend bool operator==(const OpenStore&, const OpenStore&) = default;
};
/// Close the store of `generation` with all its connections; nothing to do when it is not open.
struct CloseStore {
    Generation generation{};
    friend bool operator==(const CloseStore&, const CloseStore&) = default;
};

/// Deliver what was sent to `node`, then close its connection.
struct Disconnect {
    NodeId node;
    friend bool operator==(const Disconnect&, const Disconnect&) = default;
};

/// The job is over; every connected node was sent Finished. Deliver, then end. Events may go on meanwhile: a node that
/// comes back is told the verdict, a stranger is refused.
struct FinishJob {
    Verdict verdict;
    friend bool operator==(const FinishJob&, const FinishJob&) = default;
};

using Action = std::variant<Send, Refuse, OpenStore, CloseStore, Disconnect, FinishJob>;

// ---- the function

struct Step {
    State next;
    std::vector<Action> actions;
    std::string reason;  ///< one line for the log, or empty when there is nothing to say (a heartbeat, a quiet tick)
};

[[nodiscard]] Step step(State state, const Event& event);

}  // namespace ddprun::coordinator
