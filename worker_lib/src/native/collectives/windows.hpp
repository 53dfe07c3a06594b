#pragma once
// Windows: the parts of a buffer that pass between nodes one after the other, as long as a staging slot has room for,
// the same on all nodes whether they stage or not; and the slice of each that one rank carries. Pure.

#include <algorithm>
#include <cstddef>

#include "worker_lib/src/native/partition.hpp"

namespace ddp::detail {

struct Windows {
    std::size_t count = 0;  ///< elements of the buffer
    std::size_t most = 1;   ///< elements of a window
    std::size_t carriers = 1;
    std::size_t carrier = 0;  ///< whose slices: 0 … carriers - 1
    std::size_t grain = 1;    ///< elements of a pair of cache lines

    /// At least one, which is empty for no elements at all.
    [[nodiscard]] std::size_t number() const { return std::max<std::size_t>(1, (count + most - 1) / most); }
    [[nodiscard]] Range window(std::size_t index) const {
        return {std::min(count, index * most), std::min(count, (index + 1) * most)};
    }
    [[nodiscard]] Range slice(std::size_t index) const {
        const Range whole = window(index);
        const Range mine = part(whole.size(), carriers, carrier, grain);
        return {whole.begin + mine.begin, whole.begin + mine.end};
    }
    /// The carrier has nothing to do.
    [[nodiscard]] bool nothing() const { return number() == 1 && slice(0).empty(); }
    /// Elements of the largest slice: where there are several windows, only the last one is cut otherwise.
    [[nodiscard]] std::size_t largest_slice() const { return std::max(slice(0).size(), slice(number() - 1).size()); }
};

/// The slices of all windows, one after the other, cut into pieces for messages. They are numbered from 0 on.
struct Pieces {
    Windows windows;
    std::size_t most = 1;  ///< elements of a piece

    /// At least one, which may be empty. Of windows other than the last one.
    [[nodiscard]] std::size_t of_window() const {
        return std::max<std::size_t>(1, (windows.slice(0).size() + most - 1) / most);
    }
    /// How many there are in the windows before that one.
    [[nodiscard]] std::size_t before(std::size_t window) const {
        if (window < windows.number()) return window * of_window();
        const std::size_t of_last = (windows.slice(window - 1).size() + most - 1) / most;
        return std::max<std::size_t>(1, (window - 1) * of_window() + of_last);
    }
    [[nodiscard]] std::size_t number() const { return before(windows.number()); }
    [[nodiscard]] Range at(std::size_t index) const {
        const std::size_t window = std::min(index / of_window(), windows.number() - 1);
        const Range slice = windows.slice(window);
        const std::size_t begin = slice.begin + (index - window * of_window()) * most;
        return {std::min(slice.end, begin), std::min(slice.end, begin + most)};
    }
};

}  // namespace ddp::detail
