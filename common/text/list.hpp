#pragma once
// Lists of names and ranks for messages. Pure.

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

/// Returns "a", "a and b", "a, b and c". Of more names it lists the first `max`, "and 12 more", because texts of
/// failures are cut at 1 KiB.
[[nodiscard]] std::string list_of(std::vector<std::string> names, std::size_t max = 8);

/// Returns "a", "a, b", "a, b and 12 more": the first `max` of `names`, of which there are `total` in all.
[[nodiscard]] std::string some_of(std::vector<std::string> names, std::size_t max, std::size_t total);

/// Returns "3" or "0-3".
[[nodiscard]] std::string range_of(int first, int last);

/// Consecutive numbers.
struct NumberRange {
    int first = 0;
    int last = 0;
    friend bool operator==(const NumberRange&, const NumberRange&) = default;
};

/// Returns the ranges in ascending numbers: 0 to 3, 8 to 8, 10 to 12.
[[nodiscard]] std::vector<NumberRange> ranges_in(const std::vector<int>& ascending);

/// Returns "0-3,8", with `separator` between the ranges and `offset` added to each number.
[[nodiscard]] std::string join_ranges(const std::vector<NumberRange>& ranges, std::string_view separator,
                                      int offset = 0);

/// Returns "0-3, 8, 10-12" or "0, 2, … (500 in all)": at most eight ranges.
[[nodiscard]] std::string ranges_of(const std::set<int>& numbers);

/// Names each of a few ranks: "rank 3", "ranks 1, 2 and 7".
[[nodiscard]] std::string name_ranks(const std::vector<int>& ranks);

/// Names many ranks by their ranges: "rank 3", "ranks 1-2, 7", or "ranks 0, 2, … (500 in all)" after eight ranges. The
/// ranks may come in any order, and repeatedly.
[[nodiscard]] std::string name_rank_ranges(const std::vector<int>& ranks);

}  // namespace ddprun
