#pragma once
// JobReport: how the job ended, as the values from which the box (verdict_text.hpp), the lines of the events and the
// report (--report, docs/report.md) are made. Used by Agent and, where no agent ran or several did, by the launcher.
// Pure.

#include <boost/json.hpp>

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "agent/config/agent_config.hpp"
#include "agent/group/actions.hpp"
#include "agent/job_history.hpp"
#include "agent/output/result_file.hpp"
#include "agent/verdict_text.hpp"

namespace ddprun::agent {

/// Raised when a member of the report or of an event changes its meaning or is removed; new ones may be added.
inline constexpr int kReportVersion = 2;

struct JobReport {
    std::string_view result;  ///< of result_of(): "worker_failed"
    int exit_code = 0;
    std::string reason;     ///< one sentence
    std::string hint = {};  ///< what to do; may be empty
    JobName job = {};
    std::string run_id = {};  ///< given by the user or by the daemon; empty: not known
    std::optional<protocol::Verdict> verdict = {};
    std::string error_text = {};         ///< of the culprit's error file; empty: it ran elsewhere, or has written none
    std::string host = {};               ///< of this node; empty: the report is about several
    std::deque<GroupTimes> groups = {};  ///< of this node
    std::optional<TimeAccount> time = {};  ///< of this node: where all its time went; empty: no agent ran
    bool names_steps = false;              ///< its program has called ddp::set_step()
    std::chrono::system_clock::time_point began_at = std::chrono::system_clock::now();
    std::chrono::system_clock::time_point ended_at = std::chrono::system_clock::now();
};

/// Returns how the job ended: "succeeded", "worker_failed", "interrupted", "infrastructure", "usage", "not_needed"
/// (this node) or "internal". `verdict`: null if there was none.
[[nodiscard]] std::string_view result_of(const protocol::Verdict* verdict, int exit_code);

/// Returns the names of the job for its box and its report.
[[nodiscard]] JobName job_name(const AgentConfig& config);

/// Returns the report of an agent that ends with `finish`; the caller adds the error text.
[[nodiscard]] JobReport report_of(const Finish& finish, const AgentConfig& config, const JobHistory& history);

[[nodiscard]] boost::json::object to_json(const JobReport& report);

/// Returns the text of a report file: one JSON object, and a line end.
[[nodiscard]] std::string report_text(const boost::json::object& report);

/// Returns the file of --report; `path` may be empty.
[[nodiscard]] ResultFile report_file(const std::string& path);

}  // namespace ddprun::agent
