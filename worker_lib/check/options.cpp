#include "worker_lib/check/options.hpp"

#include <fmt/format.h>

#include "ddp/version.hpp"

namespace ddp::check {
namespace {

constexpr std::string_view kHelp =
    "Usage: ddprun check [--json FILE] [options of a job]\n"
    "   or: LAUNCHER [options] ddp-check [--json FILE]\n"
    "\n"
    "Compares the nodes of a job before it starts, and names the one that is odd.\n"
    "\n"
    "Options:\n"
    "  --json FILE    write the facts and the findings there as JSON; '-' is stdout, without the table\n"
    "  -h,--help      print all options\n"
    "  --version      print the version\n"
    "\n"
    "Exit codes: 0: nothing was found, 93: there are findings, 1: the check failed, 2: wrong usage.\n";

}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
    Options options;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        const std::string& word = arguments[i];
        const bool with_value = word.starts_with("--json=");
        if (word == "-h" || word == "--help") {
            options.print = kHelp;
        } else if (word == "--version") {
            options.print = fmt::format("ddp-check {}\n", version());
        } else if (word == "--json" || with_value) {
            if (!with_value && ++i == arguments.size()) {
                options.error = "--json: pass the name of a file, or - for stdout";
                return options;
            }
            options.json_file = with_value ? word.substr(word.find('=') + 1) : arguments[i];
            if (options.json_file.empty()) options.error = "--json: pass the name of a file, or - for stdout";
        } else {
            options.error = fmt::format("unexpected argument '{}'", word);
            return options;
        }
    }
    return options;
}

}  // namespace ddp::check
