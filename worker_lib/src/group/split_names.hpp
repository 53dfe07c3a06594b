#pragma once
// SplitRequest: the arguments that a rank passes to split(), as text in the store. And the names of the parts. Pure.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::detail {

struct SplitRequest {
    int color = 0;
    int key = 0;
    std::string name;
    bool on_host = false;  ///< the part takes host memory, whatever the group takes
};

[[nodiscard]] std::string to_text(const SplitRequest& request);
[[nodiscard]] SplitRequest parse_request(const std::string& text);

/// Returns "reducer of world", "half (color 1) of world" if several parts of this split have that name, "eval (split 2)
/// of world" if it is not the first split. Flight records distinguish groups by name, so the name depends only on
/// values that all ranks know, including those whose earlier calls failed.
/// parent   the name of the group that is split
/// split    the number of this split there, from 1
[[nodiscard]] std::string name_of_part(std::string_view parent, std::uint64_t split, const SplitRequest& own,
                                       const std::vector<SplitRequest>& all);

}  // namespace ddp::detail
