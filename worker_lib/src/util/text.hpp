#pragma once
// Lists and sentences for messages. Pure.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::detail {

/// Names ranks: "rank 3", "ranks 1, 2 and 7".
[[nodiscard]] std::string name_ranks(const std::vector<int>& ranks);

/// Returns `text` with a full stop, unless it ends a sentence already, so that another one can follow.
[[nodiscard]] std::string sentence(std::string_view text);

/// Returns "a", "a and b", "a, b and c". Of more names it lists the first `max`, "and 12 more", because texts of
/// failures are cut at 1 KiB.
[[nodiscard]] std::string list_of(std::vector<std::string> names, std::size_t max = 8);

}  // namespace ddp::detail
