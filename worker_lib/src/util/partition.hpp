#pragma once
// Division of elements among ranks. Pure.

#include <algorithm>
#include <cstddef>

namespace ddp::detail {

/// Elements [begin, end).
struct Range {
    std::size_t begin = 0;
    std::size_t end = 0;
    [[nodiscard]] std::size_t size() const { return end - begin; }
    [[nodiscard]] bool empty() const { return begin == end; }
    friend bool operator==(const Range&, const Range&) = default;
};

/// Returns part `index` of `count` elements, divided into `parts` parts of nearly equal size. Borders are multiples of
/// `grain`, so that no two ranks write to one cache line; the last parts may be empty.
constexpr Range part(std::size_t count, std::size_t parts, std::size_t index, std::size_t grain) {
    const std::size_t grains = (count + grain - 1) / grain;
    const std::size_t each = (grains + parts - 1) / parts * grain;
    return {std::min(count, index * each), std::min(count, (index + 1) * each)};
}

}  // namespace ddp::detail
