#include "ctl/options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

#include "common/option_errors.hpp"
#include "common/text/words.hpp"

namespace ddprun::ctl {
namespace {

constexpr std::uint16_t kDefaultPort = 29400;
constexpr double kMinSeconds = 0.1;
constexpr double kMaxSeconds = 3'600;

constexpr const char* kFooter =
    "\n"
    "dump shows what every rank of a running job is doing, and which rank keeps others waiting, without disturbing the "
    "job.\n"
    "With --output it writes DIR/rank_N.json for every rank, in the schema of PyTorch's flight recorder;\n"
    "ddp-fr-trace DIR analyses them with PyTorch.\n"
    "\n"
    "Exit codes: 0 shown; 2 wrong usage, or no job or several to choose from; 69 the job cannot be reached;\n"
    "74 a file or stdout could not be written; 70 a bug.";

constexpr std::array<std::string_view, 1> kCommands{"dump"};

/// Returns the error for an option before the command: ddpctl itself has only --help and --version.
std::string before_the_command(const std::string& word) {
    return fmt::format("{}: not an option of ddpctl. Write options after the command: ddpctl dump",
                       word.substr(0, word.find('=')));
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
        ->check([](const std::string& typed) { return check_seconds(typed, kMinSeconds, kMaxSeconds); })
        ->type_name("SECONDS")
        ->capture_default_str();
    // For a mistyped command CLI11 would only report that a command is required.
    if (const std::string unknown = unknown_command(argc > 1 ? argv[1] : ""); !unknown.empty())
        return refuse_usage(app, unknown);
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& asked) {  // --help, --version
        return print_requested(app, asked);
    } catch (const CLI::ParseError& error) {
        const std::vector<std::string> before = app.remaining();  // the options before the command
        if (!before.empty()) return refuse_usage(app, before_the_command(before.front()));
        if (app.get_subcommands().empty()) return refuse_usage(app, "which command? Write ddpctl dump");
        return refuse_usage(app, text_of(app, error));
    }
    options.timeout = std::chrono::milliseconds(std::llround(seconds * 1000));
    if (dump->count("--output") > 0 && options.output.empty()) return refuse_usage(app, "--output: name a folder");
    if (dump->count("--rdzv-endpoint") > 0) {
        const auto parsed = parse_endpoint(endpoint, kDefaultPort);
        if (!parsed) return refuse_usage(app, fmt::format("--rdzv-endpoint {}: {}", endpoint, parsed.error().message));
        options.endpoint = *parsed;
    }
    return options;
}

}  // namespace ddprun::ctl
