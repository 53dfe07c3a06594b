#pragma once
// What parse_options() makes of the variables of a starter.

#include <string>
#include <utility>
#include <vector>

#include "launcher/options/options.hpp"
#include "tests/catch.hpp"

namespace ddprun::launcher {

inline Environment with(Environment environment, const Environment& changes) {
    for (const auto& [name, value] : changes) environment[name] = value;
    return environment;
}

inline std::string refusal(const Environment& environment, std::vector<std::string> arguments = {"train"}) {
    const auto parsed = parse_options(arguments, environment);
    return parsed ? "" : parsed.error().message;
}

inline Options options(const Environment& environment, std::vector<std::string> arguments = {"train"}) {
    auto parsed = parse_options(arguments, environment);
    INFO((parsed ? "" : parsed.error().message));
    REQUIRE(parsed.has_value());
    return std::move(parsed->options);
}

}  // namespace ddprun::launcher
