#pragma once
// Prints --help, --version and usage errors for programs that read their command line with CLI11. The errors use the
// user's terms, where CLI11's own use its types. Called by ddprund and ddpctl on the main thread.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "common/exit_codes.hpp"
#include "common/text/print.hpp"
#include "common/text/words.hpp"

namespace ddprun {

/// Checks a port. Returns an error such as "'99999' is not a port: a whole number from 0 to 65535"; empty: it is valid.
inline std::string check_port(const std::string& text) {
    int port = 0;
    if (CLI::detail::lexical_cast(text, port) && 0 <= port && port <= 65535) return {};
    return fmt::format("'{}' is not a port: a whole number from 0 to 65535", text);
}

/// Checks a time in seconds, decimals allowed. Returns an error; empty: it is valid.
inline std::string check_seconds(const std::string& text, double min, double max) {
    double seconds = 0;
    // The comparisons are written so that not-a-number fails.
    if (CLI::detail::lexical_cast(text, seconds) && seconds >= min && seconds <= max) return {};
    return fmt::format("'{}' is not a number of seconds from {} to {:.0f}", text, min, max);
}

/// Describes `extra`, the first argument that no option of `app` takes, with the option that it resembles.
inline std::string describe_extra(const CLI::App& app, const std::string& extra) {
    if (!extra.starts_with('-')) return fmt::format("unexpected argument '{}'", extra);
    const std::string typed = extra.substr(0, extra.find('='));
    std::vector<std::string> names;
    for (const CLI::Option* option : app.get_options()) names.push_back("--" + option->get_single_name());
    return fmt::format("{}: no such option.{}", typed, did_you_mean(typed, names));
}

/// Returns `error`, thrown while `app` or a command of it was parsed, as a sentence for the user.
inline std::string text_of(const CLI::App& app, const CLI::ParseError& error) {
    const std::string text = error.what();
    // "--port: 1 required N missing"
    if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr && text.ends_with(" missing"))
        return text.substr(0, text.find(':')) + ": a value is missing";
    const std::vector<std::string> extra = app.remaining(true);
    if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr || extra.empty()) return text;
    const auto commands = app.get_subcommands();
    return describe_extra(commands.empty() ? app : *commands.front(), extra.front());
}

/// Prints the usage error `what`, with or without its full stop, for `app`. Returns the exit code.
inline int refuse_usage(const CLI::App& app, std::string what) {
    if (!what.ends_with('.') && !what.ends_with('?')) what += '.';
    std::fputs(fmt::format("{0}: {1} See {0} --help.\n", app.get_name(), what).c_str(), stderr);
    return exit_code::kUsage;
}

/// Prints the text that --help or --version has `asked` for. Returns the exit code.
inline int print_requested(const CLI::App& app, const CLI::Success& asked) {
    std::ostringstream text;
    app.exit(asked, text, text);
    const Result<void> printed = print_to_stdout(text.str());
    if (printed) return exit_code::kSuccess;
    std::fputs(fmt::format("{}: {}\n", app.get_name(), printed.error().message).c_str(), stderr);
    return exit_code::kOutput;
}

}  // namespace ddprun
