#pragma once
// The values that the report and the events share (docs/report.md), as JSON. Pure.

#include <boost/json.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "agent/time_account.hpp"
#include "common/clock.hpp"
#include "common/system/exit_status.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::agent {

/// Returns the text as valid UTF-8: it may have been written by a worker.
[[nodiscard]] boost::json::string text_json(std::string_view text);

/// Returns "2026-11-26T09:30:00.123Z".
[[nodiscard]] std::string utc_text(std::chrono::system_clock::time_point time);

/// Returns a duration in milliseconds with their thousandths; null: it is not known.
[[nodiscard]] boost::json::value milliseconds_json(std::optional<Duration> duration);

/// Returns the time from `from` to `to`; nullopt: one of them is not known.
[[nodiscard]] std::optional<Duration> between(std::optional<TimePoint> from, std::optional<TimePoint> to);

/// Returns the value as text on one line, with 13.763 where Boost.JSON writes 1.3763E1: people read these files, too.
/// A number that is not finite is null.
[[nodiscard]] std::string json_text(const boost::json::value& value);

/// Returns the role whose worker's failure has led to this group; null: none has, or the job has one role.
[[nodiscard]] boost::json::value restart_role_json(const protocol::Assignment& assignment);

/// Returns the parts as "waiting_ms", …
[[nodiscard]] boost::json::object phases_json(const TimeAccount& account);
/// Adds the parts as "phases", "wall_ms" and "goodput", which is null if the program does not name its steps. Without
/// an account all are null.
void add_account(boost::json::object& object, const std::optional<TimeAccount>& account, bool names_steps);

/// Adds how a process ended: "exit_code", and for a signal its number and its name.
void add_end(boost::json::object& object, const ExitStatus& status);

}  // namespace ddprun::agent
