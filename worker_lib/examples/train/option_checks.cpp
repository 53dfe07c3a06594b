#include "train/option_checks.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace train {
namespace {

/// Parses all of `text` as a number.
template <typename Number>
bool parse(const std::string& text, Number& number) {
    const char* const end = text.data() + text.size();
    const auto [parsed, error] = std::from_chars(text.data(), end, number);
    return error == std::errc() && parsed == end;
}

std::size_t common_beginning(const std::string& a, const std::string& b) {
    const auto [end, unused] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    return static_cast<std::size_t>(end - a.begin());
}

}  // namespace

std::string check_whole_number(const std::string& text, std::uint64_t min, std::uint64_t max) {
    std::uint64_t number = 0;
    if (parse(text, number) && number >= min && number <= max) return {};
    return fmt::format("'{}' is not a whole number from {} to {}", text, min, max);
}

std::string check_positive(const std::string& text) {
    float number = 0;
    if (parse(text, number) && std::isfinite(number) && number > 0) return {};
    return fmt::format("'{}' is not a positive number", text);
}

std::string check_one_of(const std::string& text, std::span<const std::string> words) {
    if (std::ranges::find(words, text) != words.end()) return {};
    return fmt::format("'{}' is not one of {}", text, fmt::join(words, ", "));
}

std::vector<std::string> with_dashes(int argc, const char* const* argv) {
    std::vector<std::string> arguments(argv + 1, argv + argc);
    for (std::string& argument : arguments) {
        if (!argument.starts_with("--")) continue;
        std::replace(argument.begin(), std::find(argument.begin(), argument.end(), '='), '_', '-');
    }
    return arguments;
}

std::string complain_about(const std::vector<std::string>& leftover, std::span<const std::string> known) {
    const auto is_option = [](const std::string& word) { return word.size() > 1 && word.starts_with('-'); };
    const auto found = std::ranges::find_if(leftover, is_option);
    if (found == leftover.end()) return fmt::format("unexpected argument '{}'", leftover.front());
    const std::string typed = found->substr(0, found->find('='));
    constexpr std::size_t kResemblance = 4;  // the dashes and two letters
    const auto nearest =
        std::ranges::max_element(known, {}, [&](const std::string& name) { return common_beginning(typed, name); });
    const bool resembles = nearest != known.end() && common_beginning(typed, *nearest) >= kResemblance;
    return fmt::format("{}: no such option{}", typed, resembles ? fmt::format(". Did you mean {}?", *nearest) : "");
}

}  // namespace train
