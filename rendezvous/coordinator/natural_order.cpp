#include "rendezvous/coordinator/natural_order.hpp"

#include <algorithm>
#include <compare>
#include <cstddef>
#include <utility>

namespace ddprun::coordinator {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Removes the run of digits, or of other characters, at the front of `text` and returns it.
std::string_view take_run(std::string_view& text) {
    const bool digits = is_digit(text.front());
    const auto end = std::ranges::find_if(text, [&](char c) { return is_digit(c) != digits; });
    const std::string_view run = text.substr(0, static_cast<std::size_t>(end - text.begin()));
    text.remove_prefix(run.size());
    return run;
}

/// Compares runs of digits by value, leading zeros ignored. Neither becomes a number, so they may have any length.
std::strong_ordering compare_digits(std::string_view left, std::string_view right) {
    left.remove_prefix(std::min(left.find_first_not_of('0'), left.size()));
    right.remove_prefix(std::min(right.find_first_not_of('0'), right.size()));
    if (left.size() != right.size()) return left.size() <=> right.size();
    return left <=> right;
}

std::strong_ordering natural_compare(std::string_view left, std::string_view right) {
    const auto [whole_left, whole_right] = std::pair(left, right);
    while (!left.empty() && !right.empty()) {
        const std::string_view a = take_run(left);
        const std::string_view b = take_run(right);
        const auto order = is_digit(a.front()) && is_digit(b.front()) ? compare_digits(a, b) : a <=> b;
        if (order != 0) return order;
    }
    if (left.empty() != right.empty()) return left.empty() ? std::strong_ordering::less : std::strong_ordering::greater;
    return whole_left <=> whole_right;
}

}  // namespace

bool natural_less(std::string_view left, std::string_view right) { return natural_compare(left, right) < 0; }

}  // namespace ddprun::coordinator
