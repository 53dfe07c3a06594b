#pragma once
// Meets the other nodes of a job at a meeting point: hosts its daemon, or finds the one that another node hosts. The
// decision is pure; meet() performs it through a MeetingNode. Called by job_meeting.cpp before the agent starts.

#include <chrono>
#include <optional>
#include <string>

#include "common/clock.hpp"
#include "common/error.hpp"
#include "launcher/meeting/daemon_record.hpp"
#include "launcher/meeting/meeting_point.hpp"

namespace ddprun::launcher {

/// The answer at a published address.
enum class Reach {
    kAnswers,   ///< a ddprund
    kComplete,  ///< a ddprund whose job has its fixed number of nodes; a loss may not be noticed yet
    kEnding,    ///< a ddprund whose job is over or bound to end; the daemon ends when no process of the job is left
    kEnded,     ///< the connection is refused, or another program answers: the daemon has ended
    kSilent,    ///< neither: it is slow, or its host is down or cut off
};

/// What a node knows while it meets the others.
struct Sight {
    bool published = false;
    Reach reach = Reach::kSilent;  ///< of the published address
    bool may_host = true;          ///< false: is_host=0
    bool spare = false;            ///< --spare: this node may take the place of one that is disconnected
    bool started = false;          ///< its own daemon runs, unclaimed
    bool port_taken = false;       ///< another ddprund of this machine has the port that the user named
};

enum class Move { kJoin, kStart, kClaim, kWait };

/// Returns what to do next. kClaim replaces the value that is published, if there is one. Pure.
[[nodiscard]] Move next_move(const Sight& sight);

/// This node as meet() uses it; a fake in tests.
class MeetingNode {
public:
    MeetingNode() = default;
    MeetingNode(const MeetingNode&) = delete;
    MeetingNode& operator=(const MeetingNode&) = delete;
    virtual ~MeetingNode() = default;

    /// Starts a daemon. `seen_from` is MeetingPoint::own_address(). Absent: another ddprund has the port.
    [[nodiscard]] virtual Result<std::optional<DaemonRecord>> start_daemon(const std::string& seen_from) = 0;
    /// Ends the daemon that start_daemon() has started, which no agent has joined.
    virtual void stop_daemon() = 0;
    /// Returns whether that daemon still runs: without an agent it ends after a while, and a claim may take long.
    [[nodiscard]] virtual bool daemon_runs() = 0;
    [[nodiscard]] virtual Reach reach(const Endpoint& address) = 0;
    virtual void report(const std::string& line) = 0;
    virtual void pause(Duration duration) = 0;
    [[nodiscard]] virtual TimePoint now() const = 0;
    [[nodiscard]] virtual std::string host() const = 0;
};

struct MeetingSettings {
    bool may_host = true;
    bool spare = false;
    std::chrono::milliseconds silence_limit{60'000};   ///< for a published address to answer, or its job to end
    std::chrono::milliseconds publish_limit{600'000};  ///< for an address to be published, with is_host=0
};

/// The daemon of the job.
struct Meeting {
    DaemonRecord daemon;
    std::optional<Published> mine;  ///< the value to withdraw at the end, if this node hosts the daemon
};

/// Returns the daemon of the job `name`, started here or published by another node. Of several nodes that call this
/// at once one hosts. If it fails no daemon is left here. Errors: kTimeout, kInUse, kMalformed, kMismatch; those of
/// `point` and `node`.
[[nodiscard]] Result<Meeting> meet(MeetingPoint& point, const std::string& name, const MeetingSettings& settings,
                                   MeetingNode& node);

}  // namespace ddprun::launcher
