#pragma once
// Windows: the parts of a buffer that pass between nodes one after the other, each small enough for a staging slot. All
// nodes have the same, whether they stage or not. Each carrier moves one slice of every window. Pieces: the index
// arithmetic of one carrier's messages; the stream of the operation chooses their size. Pure.

#include <algorithm>
#include <cstddef>

#include "worker_lib/src/util/partition.hpp"

namespace ddp::detail {

struct Windows {
    std::size_t count = 0;         ///< elements of the buffer
    std::size_t max_elements = 1;  ///< maximum elements of a window
    std::size_t carriers = 1;
    std::size_t carrier = 0;  ///< to which the slices belong: 0 … carriers - 1
    std::size_t grain = 1;    ///< elements of a pair of cache lines

    /// Returns the number of windows: at least one, which is empty if there are no elements.
    [[nodiscard]] std::size_t number() const {
        return std::max<std::size_t>(1, (count + max_elements - 1) / max_elements);
    }
    [[nodiscard]] Range window(std::size_t index) const {
        return {std::min(count, index * max_elements), std::min(count, (index + 1) * max_elements)};
    }
    [[nodiscard]] Range slice(std::size_t index) const {
        const Range whole = window(index);
        const Range mine = part(whole.size(), carriers, carrier, grain);
        return {whole.begin + mine.begin, whole.begin + mine.end};
    }
    /// Returns whether the carrier has nothing to do.
    [[nodiscard]] bool nothing() const { return number() == 1 && slice(0).empty(); }
    /// Returns the elements of the largest slice. If there are several, only the last one may differ.
    [[nodiscard]] std::size_t largest_slice() const { return std::max(slice(0).size(), slice(number() - 1).size()); }
};

/// The slices of all windows, one after the other, cut into pieces for messages, which are numbered from 0.
struct Pieces {
    Windows windows;
    std::size_t max_elements = 1;  ///< maximum elements of a piece

    /// Returns the pieces of each window but the last: at least one, which may be empty.
    [[nodiscard]] std::size_t of_window() const {
        return std::max<std::size_t>(1, (windows.slice(0).size() + max_elements - 1) / max_elements);
    }
    /// Returns the number of pieces in the windows before that one.
    [[nodiscard]] std::size_t before(std::size_t window) const {
        if (window < windows.number()) return window * of_window();
        const std::size_t of_last = (windows.slice(window - 1).size() + max_elements - 1) / max_elements;
        return std::max<std::size_t>(1, (window - 1) * of_window() + of_last);
    }
    [[nodiscard]] std::size_t number() const { return before(windows.number()); }
    [[nodiscard]] Range at(std::size_t index) const {
        const std::size_t window = std::min(index / of_window(), windows.number() - 1);
        const Range slice = windows.slice(window);
        const std::size_t begin = slice.begin + (index - window * of_window()) * max_elements;
        return {std::min(slice.end, begin), std::min(slice.end, begin + max_elements)};
    }
};

}  // namespace ddp::detail
