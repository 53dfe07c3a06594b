#pragma once
// Sides: those of a group who exclude the same ranks. Which of them may go on, and whom they leave behind. Pure.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "worker_lib/src/shrink_journal.hpp"

namespace ddp::detail {

/// What a rank wants, as it travels through the store: "SERIAL excludes 3 5" during its call; after it "SERIAL
/// withdrawn", or "SERIAL excluded 3 5" where others wanted something else, so that they see the difference, too.
struct ShrinkWish {
    enum class State { kWithdrawn, kStands, kDisagreed };

    std::uint64_t serial = 0;  ///< of the rank's calls
    State state = State::kWithdrawn;
    std::vector<int> excluded;

    [[nodiscard]] bool stands() const { return state == State::kStands; }

    [[nodiscard]] std::string text() const;
    [[nodiscard]] static ShrinkWish parse(const std::string& text);
};
/// Of those who have said anything.
using ShrinkWishes = std::map<int, ShrinkWish>;

/// Those who stay, of a group of `size`.
[[nodiscard]] std::vector<int> side_without(const std::vector<int>& excluded, int size);
[[nodiscard]] bool have_nobody_in_common(const std::vector<int>& a, const std::vector<int>& b);
/// Which of two sides goes on: the larger one, of equal ones that with the lowest rank.
[[nodiscard]] bool beats(const std::vector<int>& a, const std::vector<int>& b);

/// What is known of a rank that we exclude. Doubtful: said to be gone a moment ago, and it may deny it.
enum class Presence { kThere, kDoubtful, kGone };

/// Another side that excludes all of ours.
struct RivalSide {
    int rank = 0;  ///< one of it that is not known to be gone
    std::vector<int> side;
    bool formed = false;  ///< it goes on already; else it stands there and is larger than ours
    bool doubtful = false;
};
/// Because of which those who exclude `excluded`, of a group of `size`, must not go on. One that is doubtful only if
/// there is no other.
[[nodiscard]] std::optional<RivalSide> find_rival(const std::vector<int>& excluded, int size,
                                                  const ShrinkJournal& journal, const ShrinkWishes& wishes,
                                                  const std::function<Presence(int)>& presence);

/// Those of `others` that have gone on in a group without `rank` and have not called again since.
[[nodiscard]] std::vector<int> gone_on_without(int rank, const std::vector<int>& others, const ShrinkJournal& journal,
                                               const ShrinkWishes& wishes);

}  // namespace ddp::detail
