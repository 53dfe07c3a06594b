#pragma once
// FailureNote: the reason why a group is unusable, as ranks read it from shared memory or a message. Long text is cut.

#include <array>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "ddp/error.hpp"

namespace ddp::detail {

struct FailureNote {
    std::int32_t code = 0;
    std::int32_t culprit_count = 0;
    std::int32_t complete = 0;  ///< 1: the text names the reporter; 0: it does not, and readers add the author's name
    std::array<std::int32_t, 29> culprits{};
    std::array<char, 1024> text{};
};
static_assert(std::is_trivially_copyable_v<FailureNote>);

/// Whether a failure's text names its reporter already (kComplete).
enum class Wording { kOwnView, kComplete };
/// Returns the note of a failure. Cuts its text, and drops culprits for which there is no room.
[[nodiscard]] FailureNote make_note(const Error& failure, Wording wording = Wording::kOwnView);

/// Returns `failure` with the name of the rank that found it: "rank 3 (host b, pid 9) reported: …".
[[nodiscard]] Error reported_by(std::string_view name, const Error& failure);

/// Returns the failure of a note. An unknown code becomes System.
[[nodiscard]] Error read_note(const FailureNote& note);

}  // namespace ddp::detail
