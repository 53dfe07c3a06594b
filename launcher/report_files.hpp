#pragma once
// The files of --report and --events in the launcher: it checks them before anything is started, and writes the report
// where no agent runs, or several do. Called by launch().

#include <boost/json.hpp>

#include <string>
#include <string_view>

#include "agent/verdict_text.hpp"
#include "common/error.hpp"
#include "common/system/unique_fd.hpp"
#include "launcher/local_cluster.hpp"
#include "launcher/options/options.hpp"

namespace ddprun::launcher {

/// Returns the JSON object that `text` is, empty if it is none. It may contain a report, and so an error file, which
/// may itself be as deep as Boost.JSON allows by default.
[[nodiscard]] boost::json::object parse_report_object(std::string_view text);

/// Removes the report of an earlier run, and checks that one can be written. Any other file that has a content, or is
/// that of the events, is refused. `path` empty: no report is wanted. Errors: Errc::kUsage.
[[nodiscard]] Result<void> prepare_report(const std::string& path, const std::string& events);

/// Opens the file of the events for appending; `path` empty: none. Errors: Errc::kUsage.
[[nodiscard]] Result<UniqueFd> open_events(const std::string& path);

/// Removes an earlier attempt's error file, which must not be taken for that of this job. A failure is a warning.
void clear_error_file(const std::string& path);

/// Writes the report, unless another file has that name; a failure is a warning. `path` empty: none is wanted.
void write_report(const std::string& path, const boost::json::object& report);

/// Returns the report of a ddprun that ends with `error` before it has joined.
[[nodiscard]] boost::json::object refusal_report(const Error& error, int code, const agent::JobName& job);

/// Returns the report about all emulated nodes: that of a node, with the reason and the exit code that the launcher
/// knows.
[[nodiscard]] boost::json::object cluster_report(const ClusterEnd& end, const agent::JobName& job);

}  // namespace ddprun::launcher
