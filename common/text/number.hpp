#pragma once
// Converts numbers to text and text to numbers. Pure.

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace ddprun {

/// Parses `text` as one decimal number; nullopt: it is not one, or contains more, or the number does not fit.
template <typename Number>
[[nodiscard]] std::optional<Number> parse_number(std::string_view text) {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return value;
}

/// Returns "1 worker" or "2 workers"; `plural` is for a noun that does not just take an s.
template <std::integral Number>
[[nodiscard]] std::string counted(Number count, std::string_view noun, std::string_view plural = {}) {
    if (count == 1) return fmt::format("1 {}", noun);
    return plural.empty() ? fmt::format("{} {}s", count, noun) : fmt::format("{} {}", count, plural);
}

/// Returns the form of a word that agrees with `count`: inflect(n, "is", "are").
template <std::integral Number>
[[nodiscard]] constexpr std::string_view inflect(Number count, std::string_view singular, std::string_view plural) {
    return count == 1 ? singular : plural;
}

/// Returns "0.5" or "600", as the options of our programs take a time in seconds.
[[nodiscard]] std::string seconds_number(std::chrono::nanoseconds duration);

/// Returns "0.5 s" or "600 s", for a time that was configured.
[[nodiscard]] std::string seconds_text(std::chrono::nanoseconds duration);

/// Returns "4.2 s", for a time that was measured against a timeout in seconds.
[[nodiscard]] std::string rounded_seconds_text(std::chrono::nanoseconds duration);

/// Returns "35 ms", "4.2 s", "30 min" or "12 h", for a time that was measured.
[[nodiscard]] std::string duration_text(std::chrono::nanoseconds duration);

}  // namespace ddprun
