#pragma once
// The output of the workers as the options want it: the agent's settings for it, and what is checked, made and noted
// before anything is started. Called by launch(); main thread only.

#include "agent/config/agent_config.hpp"
#include "common/error.hpp"
#include "common/logging.hpp"
#include "launcher/host/temporary_log_dir.hpp"
#include "launcher/options/options.hpp"

namespace ddprun::launcher {

/// Notes ranks that options name and this node lacks. That is no error: another node may have them.
void note_absent_ranks(Options& options, int slots);

/// Notes the variables of --log-line-prefix-template that do not exist.
void note_unknown_variables(Options& options);

/// Notes that --pty has no effect without a terminal.
void note_absent_terminal(Options& options);

/// Makes the folder of the log files if the user has named one; with --dry-run only checks that it could be made.
/// Errors: files cannot be written there; a later failure is a warning.
[[nodiscard]] Result<void> prepare_log_dir(const Options& options);

/// Makes a temporary folder if some output goes to files only and the user has named none, and sets
/// Options::temporary_log_dir. Stop signals must be held: one that ends the process would leave the folder. Errors: it
/// cannot be made.
[[nodiscard]] Result<TemporaryLogDir> make_temporary_log_dir(Options& options, const Environment& environment);

/// Returns the agent's settings for the output; after the two above.
[[nodiscard]] agent::OutputConfig output_config(const Options& options);

/// Returns the beginning of ddprun's own lines: the time of day with --timestamps, and if stderr is no terminal,
/// because a log is read hours after it was written.
[[nodiscard]] LineStart log_start(const Options& options);

/// Returns the maximum number of log files that one worker's output goes to.
[[nodiscard]] int log_files_per_worker(const Options& options);

/// Warns if what `slots` workers print to stdout will be lost. That ends no job, but must not happen silently.
void warn_of_lost_output(const Options& options, int slots);

}  // namespace ddprun::launcher
