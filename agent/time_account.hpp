#pragma once
// TimeAccount: where the wall time of a node went, in parts that do not overlap (docs/design/032-goodput.md). Pure.

#include <array>
#include <string>
#include <string_view>

#include "common/clock.hpp"

namespace ddprun::agent {

/// The parts sum up to the wall time.
struct TimeAccount {
    Duration waiting{};     ///< for nodes or for the end of their workers; or the workers of this node were held
    Duration rendezvous{};  ///< with the daemon, without such waits
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

[[nodiscard]] Duration wall_time(const TimeAccount& account);
TimeAccount& operator+=(TimeAccount& sum, const TimeAccount& more);

/// Returns the share of the wall time that was productive; 0 if no time has passed.
[[nodiscard]] double goodput(const TimeAccount& account);
/// Returns "goodput: 94 % of 10 min went into new steps; the rest: restore 12.0 s, recompute 11.0 s".
[[nodiscard]] std::string goodput_text(const TimeAccount& account, bool names_steps);

}  // namespace ddprun::agent
