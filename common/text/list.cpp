#include "common/text/list.hpp"

#include <fmt/format.h>

#include "common/text/number.hpp"

namespace ddprun {
namespace {

constexpr std::size_t kMaxRanges = 8;

}  // namespace

std::string list_of(std::vector<std::string> names, std::size_t max) {
    if (names.size() > max + 1) {  // "and 1 more" is no shorter than its name
        const std::size_t left = names.size() - max;
        names.resize(max);
        names.push_back(fmt::format("{} more", left));
    }
    std::string text;
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
        text += names[i];
    }
    return text;
}

std::string some_of(std::vector<std::string> names, std::size_t max, std::size_t total) {
    if (names.size() > max) names.resize(max);
    const std::string text = fmt::format("{}", fmt::join(names, ", "));
    return total > names.size() ? fmt::format("{} and {} more", text, total - names.size()) : text;
}

std::string range_of(int first, int last) {
    return first == last ? std::to_string(first) : fmt::format("{}-{}", first, last);
}

std::vector<NumberRange> ranges_in(const std::vector<int>& ascending) {
    std::vector<NumberRange> ranges;
    for (const int number : ascending) {
        if (!ranges.empty() && ranges.back().last + 1 == number)
            ranges.back().last = number;
        else
            ranges.push_back({number, number});
    }
    return ranges;
}

std::string join_ranges(const std::vector<NumberRange>& ranges, std::string_view separator, int offset) {
    std::string text;
    for (const NumberRange& range : ranges) {
        if (!text.empty()) text += separator;
        text += range_of(range.first + offset, range.last + offset);
    }
    return text;
}

std::string ranges_of(const std::set<int>& numbers) {
    std::vector<NumberRange> ranges = ranges_in({numbers.begin(), numbers.end()});
    if (ranges.size() <= kMaxRanges) return join_ranges(ranges, ", ");
    ranges.resize(kMaxRanges);
    return fmt::format("{}, … ({} in all)", join_ranges(ranges, ", "), numbers.size());
}

std::string name_ranks(const std::vector<int>& ranks) {
    std::vector<std::string> numbers;
    for (const int rank : ranks) numbers.push_back(std::to_string(rank));
    return fmt::format("{} {}", inflect(ranks.size(), "rank", "ranks"), list_of(std::move(numbers), ranks.size()));
}

std::string name_rank_ranges(const std::vector<int>& ranks) {
    const std::set<int> sorted(ranks.begin(), ranks.end());
    return fmt::format("{} {}", inflect(sorted.size(), "rank", "ranks"), ranges_of(sorted));
}

}  // namespace ddprun
