#pragma once
// TimeAccount: where the wall time of a node went, in parts that do not overlap (docs/design/032-goodput.md). Pure.

#include <boost/json.hpp>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.hpp"

namespace ddprun::agent {

struct GroupTimes;

/// The parts sum up to the wall time.
struct TimeAccount {
    Duration waiting{};     ///< too few nodes were there, or the workers were held, or other nodes had not ended yet
    Duration rendezvous{};  ///< with the daemon, without the wait for nodes
    Duration start{};       ///< of the processes
    Duration restore{};     ///< until the first step: ranks connect, a checkpoint is loaded
    Duration recompute{};   ///< steps that an earlier group had begun already
    Duration productive{};  ///< new steps; all the time in which workers ran if the program does not name its steps
    Duration detect{};      ///< from the first sign of a failure until the stop begins
    Duration stop{};        ///< until no process is left
};

/// A part of the account and its name in the report.
struct TimePart {
    std::string_view name;
    Duration TimeAccount::*part;
};
inline constexpr std::array<TimePart, 8> kTimeParts{{{"waiting", &TimeAccount::waiting},
                                                     {"rendezvous", &TimeAccount::rendezvous},
                                                     {"start", &TimeAccount::start},
                                                     {"restore", &TimeAccount::restore},
                                                     {"recompute", &TimeAccount::recompute},
                                                     {"productive", &TimeAccount::productive},
                                                     {"detect", &TimeAccount::detect},
                                                     {"stop", &TimeAccount::stop}}};

/// A time in which nothing goes on, whatever it interrupts.
struct Pause {
    TimePoint from;
    TimePoint to;
};

[[nodiscard]] Duration wall_time(const TimeAccount& account);
TimeAccount& operator+=(TimeAccount& sum, const TimeAccount& more);

/// Accounts for the time of a group until it ended, or until `now` if it has not. `names_steps`: the program calls
/// ddp::set_step(), so a group without a step has spent its run on restoring.
[[nodiscard]] TimeAccount account_of(const GroupTimes& group, bool names_steps, TimePoint now);
/// Accounts for a time without a group; pauses are `waiting`.
[[nodiscard]] TimeAccount account_of_wait(TimePoint from, TimePoint to, const std::vector<Pause>& pauses);

/// Returns the parts as "waiting_ms", …
[[nodiscard]] boost::json::object phases_json(const TimeAccount& account);
/// Adds the parts as "phases", "wall_ms" and "goodput", which is null if the program does not name its steps.
void add_account(boost::json::object& object, const TimeAccount& account, bool names_steps);
/// Returns the share of the wall time that was productive; 0 if no time has passed.
[[nodiscard]] double goodput(const TimeAccount& account);
/// Returns "goodput: 94 % of 10.2 min went into new steps; the rest: restore 12.0 s, recompute 11.0 s".
[[nodiscard]] std::string goodput_text(const TimeAccount& account, bool names_steps);

}  // namespace ddprun::agent
