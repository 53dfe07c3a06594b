#pragma once
// What the ranks of a group say when it is split, and how the parts are called by it. Pure.

#include <cstdint>
#include <set>
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

/// Names of the parts of one group. Every rank sees all wishes of all splits, so all name the parts alike.
class SplitNames {
public:
    /// "reducer of world", "half (color 1) of world" where several parts are called so, "reducer (split 2) of world"
    /// where an earlier one was. The next() of the same split takes the names for used.
    [[nodiscard]] std::string name_of(std::string_view parent, std::uint64_t split, const SplitWish& own,
                                      const std::vector<SplitWish>& all) const;
    void next(const std::vector<SplitWish>& all);

private:
    std::set<std::string> used_;
};

}  // namespace ddp::detail
