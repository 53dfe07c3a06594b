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

namespace ddprun::daemon {
namespace {

constexpr std::uint16_t kPyTorchPort = 29500;

constexpr std::array kDialects{
    std::pair{std::string_view("1.13"), store::OlderDialect::kV1_13},
    std::pair{std::string_view("2.1"), store::OlderDialect::kV2_1},
    std::pair{std::string_view("none"), store::OlderDialect::kNone},
};

/// 1 to 2^63-1, with an optional K, M, G or T for powers of 1024.
std::optional<std::size_t> parse_amount(std::string_view text) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || number == 0) return std::nullopt;
    const std::string_view unit(end, text.data() + text.size());
    if (unit.size() > 1) return std::nullopt;
    const auto power = unit.empty() ? 0 : std::string_view("KMGT").find(unit) + 1;
    if (!unit.empty() && power == 0) return std::nullopt;  // npos + 1
    constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (number > (kMost >> (10 * power))) return std::nullopt;
    return static_cast<std::size_t>(number << (10 * power));
}

}  // namespace

Result<Endpoint> parse_store_endpoint(const std::string& text) {
    auto endpoint = parse_endpoint(text, kPyTorchPort);
    if (!endpoint) return with_context("--store", endpoint.error());
    return endpoint;
}

Result<void> apply_store_limit(const std::string& text, store::Limits& limits) {
    const auto equals = text.find('=');
    std::string name = text.substr(0, equals);
    std::ranges::replace(name, '_', '-');
    const auto* const limit = std::ranges::find(store::kLimitOptions, name, &store::LimitOption::name);
    if (equals == std::string::npos || limit == store::kLimitOptions.end()) {
        std::string names;
        for (const store::LimitOption& known : store::kLimitOptions)
            names += fmt::format("{}{}", names.empty() ? "" : ", ", known.name);
        return Error{Errc::kUsage,
                     fmt::format("--store-limit: '{}' is not NAME=VALUE with one of the names {}", text, names)};
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
    return Error{Errc::kUsage,
                 fmt::format("--older-dialect: '{}' is none of 1.13 (PyTorch 1.13 and 2.0), 2.1 and none", text)};
}

std::string_view to_string(store::OlderDialect dialect) {
    return std::ranges::find(kDialects, dialect, &std::pair<std::string_view, store::OlderDialect>::second)->first;
}

}  // namespace ddprun::daemon
