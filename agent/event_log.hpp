#pragma once
// EventLog: appends the agent's events and decisions to the file of --events, one JSON object per line
// (docs/report.md). A slow or full disk costs lines, not time: the lines pass through a LogWriter, and are dropped and
// counted while too many wait. Owned by Agent; one thread.

#include <boost/json.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/config/agent_config.hpp"
#include "agent/event_json.hpp"
#include "agent/output/log_writer.hpp"
#include "common/clock.hpp"

namespace ddprun::agent {

class EventLog {
public:
    /// `file` may be no file: then nothing is recorded. `config` and `history` outlive this object.
    EventLog(LogFile file, const AgentConfig& config, const JobHistory& history, TimePoint began)
        : file_(std::move(file)), config_(config), history_(history), began_(began) {}

    /// Records what has happened; `state`: after it.
    void record(const Event& event, const worker_group::State& state);
    /// Records what is decided. `state` and `reason`: those of the step; `now`: of its event.
    void record(const Action& action, const worker_group::State& state, const std::string& reason, TimePoint now);
    void record_start(const std::vector<pid_t>& pids, TimePoint now);
    /// Ends the file, with a line about lines that were dropped last.
    void close();

private:
    void append(const std::optional<boost::json::object>& object, TimePoint at);
    void write(const boost::json::object& object, TimePoint at);

    LogFile file_;
    const AgentConfig& config_;
    const JobHistory& history_;
    TimePoint began_;
    std::string waits_for_;  ///< the reason of the latest wait: the daemon repeats it
    std::size_t dropped_ = 0;
};

}  // namespace ddprun::agent
