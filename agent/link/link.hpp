#pragma once
// Decides for one node when the daemon is dialled, what is sent and repeated to it, when the lease of the workers ends,
// and when the daemon is given up (docs/design/026). Pure: no clock, socket or log. DaemonLink performs the actions.

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "agent/link/actions.hpp"
#include "agent/link/events.hpp"
#include "agent/link/lease.hpp"
#include "common/clock.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::agent::link {

/// Two dials begin at least this long after each other, also when each new connection ends at once.
inline constexpr std::chrono::milliseconds kDialInterval{100};
/// A connection without an answer to its Join is reset after this time: the network has taken the Join, or the daemon
/// has stopped. Less than the default of lost_after, so that the daemon has not lost the node meanwhile. Before the
/// first Welcome each reset doubles it: a daemon that many nodes join at once must not be kept from answering by their
/// new handshakes.
inline constexpr std::chrono::milliseconds kWelcomeTimeout{2000};
/// The time for one more try after a job that has all its nodes rejects this one for good.
inline constexpr std::chrono::seconds kLastTry{1};

/// The phase of the connection.
enum class Phase {
    kIdle,       ///< before Started
    kDialing,    ///< a Dial is in progress
    kConnected,  ///< until ConnectionEnded, also after a Reset
    kPausing,    ///< between two connections
    kEnded,      ///< nothing follows: the daemon is given up, the job is over, or the agent has closed the link
};

/// A plain value that step() alone changes. Set `daemon`, `join` and `connect_timeout` before the first step.
struct State {
    std::string daemon;  ///< "the rendezvous daemon at …"
    protocol::Join join;
    std::chrono::milliseconds connect_timeout{};  ///< of connecting, and of the wait for the first Welcome

    Phase phase = Phase::kIdle;
    Lease lease;
    TimePoint begun;           ///< when the first connection was tried
    TimePoint dialed_at;       ///< when the latest was
    TimePoint dial_due;        ///< when the next is to be tried (kPausing)
    TimePoint joined_at;       ///< when its Join was sent
    TimePoint heartbeat_due;   ///< after the first Welcome
    bool welcomed = false;     ///< by any connection
    bool over = false;         ///< the daemon has sent its last message
    bool interrupted = false;  ///< the connection broke, and the user was notified
    bool lease_ended = false;  ///< LeaseEnded was raised; the next Welcome ends that
    bool hold_ended = false;   ///< the same for HoldEnded
    bool daemon_knows_records = false;
    std::string silence;                               ///< why this side has reset the connection; empty: it has not
    std::string broken;                                ///< why the last connection ended
    bool fell_silent = false;                          ///< this side has reset it
    std::optional<TimePoint> welcome_due;              ///< when a connection without an answer to its Join is reset
    Duration first_welcome_timeout = kWelcomeTimeout;  ///< of the next connection before the first Welcome
    std::string rejection;  ///< by a daemon that may need this node later; empty: there was none
    /// When a job that needs no node now rejects this one for good; nullopt: it has not been rejected by such a job.
    std::optional<TimePoint> rejected_for_good_at;
    /// The reports about the latest worker group, and Leave: the daemon may have missed them.
    std::vector<protocol::AgentMessage> reports;
};

/// The result of one event.
struct Step {
    State next;
    std::vector<Action> actions;
};

/// Returns when a Tick is due; empty: none is.
[[nodiscard]] std::optional<TimePoint> next_deadline(const State& state);

/// Returns whether a message that is useful only now may be sent now: there is a connection, and its daemon understands
/// the message.
[[nodiscard]] inline bool can_send_now(const State& state) {
    return state.phase == Phase::kConnected && state.daemon_knows_records && !state.interrupted;
}

/// Returns when the daemon is given up, and this node ends, unless it answers. This function alone decides how long a
/// node goes on without its daemon.
[[nodiscard]] TimePoint given_up_at(const State& state);

/// Returns the state after `event`, and the actions to perform in order.
[[nodiscard]] Step step(State state, Event event);

}  // namespace ddprun::agent::link
