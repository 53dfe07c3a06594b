#pragma once
// Reads and writes decimal numbers as ADD does: the store keeps them as text. Pure.

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>

namespace ddprun::store {

/// Reads decimal text as C's strtoll does in base 10: blanks before it and anything after it are ignored. Returns
/// nothing when there are no digits, or more than 64 bits.
[[nodiscard]] inline std::optional<std::int64_t> leading_number(std::string_view text) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\n\v\f\r"), text.size()));
    // from_chars does not accept a plus sign; "+-1" is not a number.
    if (text.starts_with('+')) {
        text.remove_prefix(1);
        if (text.starts_with('-')) return std::nullopt;
    }
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{}) return std::nullopt;
    return number;
}

[[nodiscard]] inline std::int64_t wrapping_sum(std::int64_t a, std::int64_t b) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

/// Decimal: holds a number as decimal text, without an allocation.
class Decimal {
public:
    explicit Decimal(std::int64_t number)
        : end_(std::to_chars(digits_.data(), digits_.data() + digits_.size(), number).ptr) {}
    Decimal(const Decimal&) = delete;
    Decimal& operator=(const Decimal&) = delete;
    [[nodiscard]] std::string_view text() const {
        return {digits_.data(), static_cast<std::size_t>(end_ - digits_.data())};
    }

private:
    std::array<char, std::numeric_limits<std::int64_t>::digits10 + 2> digits_;
    char* end_;
};

}  // namespace ddprun::store
