#pragma once
// The command line of ddp-check, which `ddprun check` writes.

#include <optional>
#include <string>
#include <vector>

namespace ddp::check {

struct Options {
    std::string json_file;  ///< where the report goes as JSON; "-": to stdout, without the table; empty: nowhere
    std::string print;      ///< the text of --help or --version, to print instead of a check; empty: none
    std::string error;      ///< why the line is wrong; empty: it is not
};

/// Parses the arguments, without the program's name.
[[nodiscard]] Options parse_options(const std::vector<std::string>& arguments);

}  // namespace ddp::check
