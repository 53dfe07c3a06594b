#pragma once
// Takes a command line apart: ddprun's own options, then the program with its arguments, which are nobody's business here.
// Both spellings of an option become one; what the texts mean is decided by the rows of option_table.hpp.

#include <map>
#include <string>
#include <vector>

#include "common/error.hpp"

namespace ddprun::launcher {

struct CommandLine {
    std::map<std::string, std::string, std::less<>> given;  ///< row name → text; a flag's is "1"; the last one counts
    std::vector<std::string> program;                       ///< from the first word that is neither option nor value
    std::string print;                                      ///< --help or --version was given: print this and end
};

/// `arguments` without argv[0]. Errors: Errc::kUsage for an unknown option (with the nearest known one), a missing or an
/// unexpected value. Options are recognised by their whole name only.
[[nodiscard]] Result<CommandLine> read_command_line(const std::vector<std::string>& arguments);

}  // namespace ddprun::launcher
