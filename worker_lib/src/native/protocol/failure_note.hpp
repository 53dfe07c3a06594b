#pragma once
// FailureNote: a Failure as ranks read it from shared memory or from a message. Long texts are cut.

#include <array>
#include <cstdint>
#include <type_traits>

#include "worker_lib/src/operation/failure.hpp"

namespace ddp::detail {

struct FailureNote {
    std::int32_t kind = 0;
    std::int32_t code = 0;
    std::int32_t names_group = 0;
    std::int32_t culprit_count = 0;
    std::array<std::int32_t, 30> culprits{};
    // Each ends at its first zero byte, if it has one.
    std::array<char, 256> reporter{};
    std::array<char, 256> operation{};
    std::array<char, 1024> cause{};
};
static_assert(std::is_trivially_copyable_v<FailureNote> && sizeof(FailureNote) == 1672, "all its bytes are defined");

/// Returns the note of a failure. Cuts its texts, and drops culprits for which there is no room.
[[nodiscard]] FailureNote make_note(const Failure& failure);

/// Returns the failure of a note, of which nothing is trusted: it may come over the network. An unknown kind becomes
/// kOwn, as does kRelayed without a reporter, and an unknown code becomes System. Culprits that are not ranks of the
/// group are dropped.
/// group_size   the number of ranks of the group
[[nodiscard]] Failure read_note(const FailureNote& note, int group_size);

}  // namespace ddp::detail
