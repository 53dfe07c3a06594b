#pragma once
// Helpers that the tests of the reducer share.

#include <algorithm>
#include <span>

#include "ddp/reducer.hpp"

namespace ddp::testing {

/// Gradient i, which is of f32.
inline std::span<float> values(GradientReducer& reducer, std::size_t i) {
    const Buffer view = reducer.grad(i);
    return {static_cast<float*>(view.data), view.count};
}

inline constexpr BucketLimits kOneEach{.bucket_cap_bytes = 1, .first_bucket_cap_bytes = 1};  // a bucket per gradient

inline bool all_are(std::span<const float> values, float wanted) {
    return std::ranges::all_of(values, [=](float value) { return value == wanted; });
}

/// Makes a synchronised backward whose gradients are all `mine`, marks the last parameter first, and returns its
/// result.
inline BackwardResult run_step(GradientReducer& reducer, std::size_t params, float mine) {
    reducer.begin_backward();
    for (std::size_t i = params; i-- > 0;) {
        for (float& value : values(reducer, i)) value = mine;
        reducer.mark_ready(i);
    }
    return reducer.finish_backward();
}

}  // namespace ddp::testing
