#include "rendezvous/daemon/store_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace ddprun::daemon {
namespace {

constexpr std::uint16_t kPyTorchPort = 29500;

constexpr std::array kDialects{
    std::pair{std::string_view("1.13"), store::OlderDialect::kV1_13},
    std::pair{std::string_view("2.1"), store::OlderDialect::kV2_1},
    std::pair{std::string_view("none"), store::OlderDialect::kNone},
};

/// Parses 1 to 2^63-1, with an optional K, M, G or T for powers of 1024.
std::optional<std::size_t> parse_amount(std::string_view text) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || number == 0) return std::nullopt;
    const std::string_view unit(end, text.data() + text.size());
    if (unit.size() > 1) return std::nullopt;
    const auto power = unit.empty() ? 0 : std::string_view("KMGT").find(unit) + 1;
    if (!unit.empty() && power == 0) return std::nullopt;  // npos + 1
    constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (number > (kMax >> (10 * power))) return std::nullopt;
    return static_cast<std::size_t>(number << (10 * power));
}

}  // namespace

Result<Endpoint> parse_store_endpoint(const std::string& text) {
    auto endpoint = parse_endpoint(text, 0);
    if (!endpoint) return with_context("--store " + text, endpoint.error());
    const Endpoint usual = parse_endpoint(text, kPyTorchPort).value();
    if (usual == *endpoint) return endpoint;  // the text has a port
    const bool only_port = text.find_first_not_of("0123456789") == std::string::npos;
    const bool is_port = only_port && parse_endpoint("127.0.0.1:" + text, 0).has_value();
    const std::string suggestion =
        only_port ? "127.0.0.1:" + (is_port ? text : std::to_string(kPyTorchPort)) : to_string(usual);
    return Error{Errc::kUsage, fmt::format("--store {}: the {} is missing. Write --store {}", text,
                                           only_port ? "host" : "port", suggestion)};
}

Result<void> apply_store_limit(const std::string& text, store::Limits& limits) {
    const auto equals = text.find('=');
    std::string name = text.substr(0, equals);
    std::ranges::replace(name, '_', '-');
    const auto* const limit = std::ranges::find(store::kLimitOptions, name, &store::LimitOption::name);
    if (equals == std::string::npos || limit == store::kLimitOptions.end()) {
        std::vector<std::string_view> names;
        for (const store::LimitOption& known : store::kLimitOptions) names.push_back(known.name);
        return Error{Errc::kUsage, fmt::format("--store-limit: '{}' is not NAME=VALUE with one of the names {}", text,
                                               fmt::join(names, ", "))};
    }
    const auto amount = parse_amount(std::string_view(text).substr(equals + 1));
    if (!amount) {
        return Error{Errc::kUsage,
                     fmt::format("--store-limit: '{}' is not a number from 1 up, with K, M, G or T behind "
                                 "it for 1024, 1024², …",
                                 text.substr(equals + 1))};
    }
    limits.*(limit->field) = *amount;
    return {};
}

Result<store::OlderDialect> parse_older_dialect(const std::string& text) {
    const auto* const found =
        std::ranges::find(kDialects, text, &std::pair<std::string_view, store::OlderDialect>::first);
    if (found != kDialects.end()) return found->second;
    return Error{
        Errc::kUsage,
        fmt::format("--older-dialect: '{}' is not a dialect. Write 1.13 (for PyTorch 1.13 and 2.0), 2.1 or none.",
                    text)};
}

std::string_view to_string(store::OlderDialect dialect) {
    return std::ranges::find(kDialects, dialect, &std::pair<std::string_view, store::OlderDialect>::second)->first;
}

}  // namespace ddprun::daemon
