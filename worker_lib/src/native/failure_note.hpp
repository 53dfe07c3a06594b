#pragma once
// FailureNote: why a rank gave up, in the form in which its peers read it: from shared memory or from a message. Text
// is cut.

#include <array>
#include <cstdint>
#include <type_traits>

#include "ddp/error.hpp"

namespace ddp::detail {

struct FailureNote {
    std::int32_t code = 0;
    std::int32_t culprit_count = 0;
    std::array<std::int32_t, 30> culprits{};
    std::array<char, 1024> text{};
};
static_assert(std::is_trivially_copyable_v<FailureNote>);

[[nodiscard]] FailureNote make_note(const Error& failure);

/// Back again; an unknown code becomes System.
[[nodiscard]] Error read_note(const FailureNote& note);

}  // namespace ddp::detail
