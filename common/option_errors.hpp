#pragma once
// What is wrong with a command line that CLI11 reads, in words that say what would be right; CLI11's own are about its
// types. For programs that link CLI11; ddprun and the programs on ddp::ddp have words of their own.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "common/nearest.hpp"

namespace ddprun {

/// A check for an option: empty, or "'99999' is not a port: a whole number from 0 to 65535".
inline std::string check_port(const std::string& text) {
    int port = 0;
    if (CLI::detail::lexical_cast(text, port) && 0 <= port && port <= 65535) return {};
    return fmt::format("'{}' is not a port: a whole number from 0 to 65535", text);
}

/// The same for a time in seconds, decimals allowed.
inline std::string check_seconds(const std::string& text, double least, double most) {
    double seconds = 0;
    // Written so that not-a-number fails.
    if (CLI::detail::lexical_cast(text, seconds) && seconds >= least && seconds <= most) return {};
    return fmt::format("'{}' is not a number of seconds from {} to {:.0f}", text, least, most);
}

/// Of the arguments that nothing took the first one, with the option of `app` that it resembles.
inline std::string complain_about_extra(const CLI::App& app, const std::string& extra) {
    if (!extra.starts_with('-')) return fmt::format("'{}' belongs to no option", extra);
    const std::string typed = extra.substr(0, extra.find('='));
    std::vector<std::string> names;
    for (const CLI::Option* option : app.get_options()) names.push_back("--" + option->get_single_name());
    const std::vector<std::string_view> known(names.begin(), names.end());
    return fmt::format("{}: no such option.{}", typed, did_you_mean(typed, known));
}

/// What `error`, thrown while `app` was parsed or, behind it, a command of it, means for who typed it: a sentence with
/// its full stop.
inline std::string words_of(const CLI::App& app, const CLI::ParseError& error) {
    const std::string text = error.what();
    // "--port: 1 required N missing"
    if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr && text.ends_with(" missing"))
        return text.substr(0, text.find(':')) + ": a value is missing.";
    const std::vector<std::string> extra = app.remaining(true);
    if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr || extra.empty()) return text + '.';
    const auto commands = app.get_subcommands();
    return complain_about_extra(commands.empty() ? app : *commands.front(), extra.front());
}

}  // namespace ddprun
