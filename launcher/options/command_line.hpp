#pragma once
// Splits a command line into ddprun's own options and the programs with their arguments, which are passed on unread.
// Both spellings of an option become one. The rows of option_table.hpp parse the values. Called by parse_options().

#include <map>
#include <string>
#include <vector>

#include "common/error.hpp"

namespace ddprun::launcher {

/// A program with the options before it.
struct ProgramLine {
    std::map<std::string, std::string, std::less<>> given;  ///< row name → text; "1" for a flag; the last one counts
    std::vector<std::string> command;  ///< from the first argument that is neither option nor value
    bool check = false;                ///< `ddprun check`: `command` is ddp-check with its arguments
};

/// A command line after the split.
struct CommandLine {
    std::vector<ProgramLine> programs;  ///< at least one; the first has the options of the job, too
    std::string print;                  ///< the text of --help, --version or --print-completion; empty: none was given
};

/// Splits `arguments` (without argv[0]). An option must be written with its whole name. A ':' directly before
/// --nproc-per-node begins a further program; any other ':' is an argument of the program. A first program named
/// `check`, without a slash and not after "--" or an option that makes it a script, a module or a file, is `ddprun
/// check`. Errors: Errc::kUsage for an unknown option (with the nearest known one), one that does not belong to a
/// further program, a missing or an unexpected value, a shell without completion.
[[nodiscard]] Result<CommandLine> read_command_line(const std::vector<std::string>& arguments);
/// The same up to the first program's name: that program may have anything behind it, also the others of the job.
[[nodiscard]] Result<ProgramLine> read_first_options(const std::vector<std::string>& arguments);

}  // namespace ddprun::launcher
