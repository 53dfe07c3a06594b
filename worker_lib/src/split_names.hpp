#pragma once
// What the ranks of a group say when it is split, and how the parts are called by it. Pure.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::detail {

struct SplitWish {
    int color = 0;
    int key = 0;
    std::string name;
};

[[nodiscard]] std::string to_text(const SplitWish& wish);
[[nodiscard]] SplitWish parse_wish(const std::string& text);

/// "reducer of world", "half (color 1) of world" where several parts of this split are called so, "eval (split 2) of
/// world" where it is not the first split. By what all ranks know alike, also those whose earlier calls failed, for
/// boards tell groups apart by their names.
/// parent   the name of the group that is split
/// split    the number of this split there, from 1
[[nodiscard]] std::string name_of_part(std::string_view parent, std::uint64_t split, const SplitWish& own,
                                       const std::vector<SplitWish>& all);

}  // namespace ddp::detail
