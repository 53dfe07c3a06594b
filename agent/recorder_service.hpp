#pragma once
// RecorderService: reads the flight records of this node's workers. It reports stuck workers to the daemon, and sends
// whole records on request. Agent::perform() calls it. One thread.

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "agent/config/agent_config.hpp"
#include "agent/recorder/stall_detector.hpp"
#include "agent/workers/worker_processes.hpp"
#include "common/clock.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::agent {

/// The worker group whose flight records are read.
struct RecordedWorkers {
    const protocol::Assignment& assignment;
    const WorkerProcesses& processes;
};

class RecorderService {
public:
    /// Returns false if the message was not sent.
    using TrySend = std::function<bool(const protocol::AgentMessage&)>;

    /// `config` outlives this object, and the node's name in it may change.
    RecorderService(const AgentConfig& config, TrySend try_send);

    /// Returns the interval at which to call check_for_stalls().
    [[nodiscard]] std::chrono::nanoseconds check_interval() const { return stalls_.interval(); }
    /// Forgets the workers of the group before.
    void reset();
    /// Reports each worker of `running` that has been in one operation for too long, and notes which are stopped.
    void check_for_stalls(const RecordedWorkers& workers, const std::set<LocalRank>& running, TimePoint now);
    /// Reports an operation of `rank`, which has ended, that failed by its deadline: the flight records of its peers
    /// still show which rank kept it waiting.
    void report_timeouts(const RecordedWorkers& workers, LocalRank rank) { report_stall(workers, rank, true); }
    /// Sends the flight record of `rank`; `last`: it completes the answer to `request`. If the daemon cannot be reached
    /// the record is dropped, because it does not wait for it any more.
    void send_record(const RecordedWorkers& workers, const protocol::RequestRecords& request, LocalRank rank, bool last,
                     TimePoint now);

private:
    void report_stall(const RecordedWorkers& workers, LocalRank rank, bool only_timeouts);
    /// Returns for how long that worker has been seen in the state kStopped; empty: it is in another one.
    std::optional<Duration> stopped_for(LocalRank rank, std::optional<ProcessState> process, TimePoint now);

    const AgentConfig& config_;
    TrySend try_send_;
    StallDetector stalls_;
    std::map<LocalRank, TimePoint> stopped_since_;
};

}  // namespace ddprun::agent
