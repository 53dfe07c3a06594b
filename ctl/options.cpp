#include "ctl/options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cmath>
#include <cstdio>
#include <sstream>
#include <string_view>
#include <vector>

#include "common/exit_codes.hpp"
#include "common/nearest.hpp"
#include "common/option_words.hpp"
#include "common/print.hpp"

namespace ddprun::ctl {
namespace {

constexpr std::uint16_t kDefaultPort = 29400;
constexpr double kShortestSeconds = 0.1;
constexpr double kLongestSeconds = 3'600;

constexpr const char* kFooter =
    "\n"
    "dump shows what every rank of a running job is doing, and who keeps whom waiting, without disturbing the job.\n"
    "With --output it writes DIR/rank_N.json for every rank, in the schema of PyTorch's flight recorder;\n"
    "ddp-fr-trace DIR has PyTorch analyse them.\n"
    "\n"
    "Exit codes: 0 shown; 2 wrong usage, or no job or several to choose from; 69 the job cannot be reached;\n"
    "74 a file or stdout could not be written; 70 a bug.";

/// `what` is a sentence, with or without its full stop.
int complain(std::string what) {
    if (!what.ends_with('.') && !what.ends_with('?')) what += '.';
    std::fputs(fmt::format("ddpctl: {} See ddpctl --help.\n", what).c_str(), stderr);
    return exit_code::kUsage;
}

constexpr std::array<std::string_view, 1> kCommands{"dump"};

/// ddpctl itself has --help and --version alone.
std::string before_the_command(const std::string& word) {
    return fmt::format("{}: no option of ddpctl itself. Write the command first: ddpctl dump",
                       word.substr(0, word.find('=')));
}

int show(const CLI::App& app, const CLI::Success& asked) {
    std::ostringstream text;
    app.exit(asked, text, text);
    const Result<void> printed = print_to_stdout(text.str());
    if (printed) return exit_code::kSuccess;
    std::fputs(fmt::format("ddpctl: {}\n", printed.error().message).c_str(), stderr);
    return exit_code::kOutput;
}

}  // namespace

std::string unknown_command(std::string_view typed) {
    if (typed.empty() || typed.starts_with('-') || typed == kCommands[0]) return "";
    return fmt::format("there is no command '{}'.{}", typed, did_you_mean(typed, kCommands));
}

std::variant<DumpOptions, int> parse_options(int argc, const char* const* argv) {
    DumpOptions options;
    std::string endpoint;
    double seconds = std::chrono::duration<double>(options.timeout).count();
    CLI::App app("ddpctl: looks at a running job of ddprun.", "ddpctl");
    app.footer(kFooter);
    app.set_version_flag("--version", "ddpctl " DDPRUN_VERSION);
    app.require_subcommand(1);
    CLI::App* const dump = app.add_subcommand("dump", "show what every rank is doing");
    dump->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    dump->add_option("--rdzv-endpoint,--rdzv_endpoint", endpoint,
                     "address of the job's rendezvous daemon, as for ddprun; without it, the one job of yours that has "
                     "workers on this machine")
        ->type_name("HOST[:PORT]");
    dump->add_option("-o,--output", options.output, "also write one JSON file per rank to this folder")
        ->type_name("DIR");
    dump->add_option("--timeout", seconds, "how long to try to reach the daemon, and to wait for each answer")
        ->check([](const std::string& typed) { return check_seconds(typed, kShortestSeconds, kLongestSeconds); })
        ->type_name("SECONDS")
        ->capture_default_str();
    // CLI11 would say of a mistyped command that a command is required.
    if (const std::string unknown = unknown_command(argc > 1 ? argv[1] : ""); !unknown.empty())
        return complain(unknown);
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& asked) {  // --help, --version
        return show(app, asked);
    } catch (const CLI::ParseError& error) {
        const std::vector<std::string> before = app.remaining();  // what stands before the command
        if (!before.empty()) return complain(before_the_command(before.front()));
        if (app.get_subcommands().empty()) return complain("which command? Write ddpctl dump");
        return complain(words_of(app, error));
    }
    options.timeout = std::chrono::milliseconds(std::llround(seconds * 1000));
    if (dump->count("--output") > 0 && options.output.empty()) return complain("--output: name a folder");
    if (dump->count("--rdzv-endpoint") > 0) {
        const auto parsed = parse_endpoint(endpoint, kDefaultPort);
        if (!parsed) return complain("--rdzv-endpoint: " + parsed.error().message);
        options.endpoint = *parsed;
    }
    return options;
}

}  // namespace ddprun::ctl
