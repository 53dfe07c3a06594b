#pragma once
// Sides: the ranks of a group that exclude the same ranks are one side. Decides which side may go on, and which ranks
// it leaves behind. Pure.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "worker_lib/src/group/shrink/journal.hpp"

namespace ddp::detail {

/// ShrinkRequest: the call of one rank, as it travels through the store: "SERIAL excludes 3 5" during the call; then
/// "SERIAL withdrawn", or "SERIAL excluded 3 5" where others requested something else, so that they see the difference,
/// too.
struct ShrinkRequest {
    enum class State { kWithdrawn, kStands, kDisagreed };

    std::uint64_t serial = 0;  ///< counts the rank's calls
    State state = State::kWithdrawn;
    std::vector<int> excluded;

    [[nodiscard]] bool stands() const { return state == State::kStands; }

    [[nodiscard]] std::string text() const;
    [[nodiscard]] static ShrinkRequest parse(const std::string& text);
};
/// The requests by rank, of those ranks that have published one.
using ShrinkRequests = std::map<int, ShrinkRequest>;

/// Returns the ranks of a group of `size` that stay.
[[nodiscard]] std::vector<int> side_without(const std::vector<int>& excluded, int size);
[[nodiscard]] bool are_disjoint(const std::vector<int>& a, const std::vector<int>& b);
/// Returns whether side `a` wins over `b`: the larger one does, of equal ones that with the lowest rank.
[[nodiscard]] bool beats(const std::vector<int>& a, const std::vector<int>& b);

/// What is known of an excluded rank. Doubtful: it was reported lost a moment ago, and may still deny it.
enum class Presence { kThere, kDoubtful, kGone };

/// Another side, which excludes all ranks of this one.
struct RivalSide {
    int rank = 0;  ///< a rank of it that is not known to be lost
    std::vector<int> side;
    bool formed = false;  ///< it goes on already; else it is complete or not, and wins over this one
    bool doubtful = false;
};
/// Returns the side that keeps the ranks that exclude `excluded`, of a group of `size`, from going on. Returns a
/// doubtful one only if there is no other.
[[nodiscard]] std::optional<RivalSide> find_rival(const std::vector<int>& excluded, int size,
                                                  const ShrinkJournal& journal, const ShrinkRequests& requests,
                                                  const std::function<Presence(int)>& presence);

/// Returns those of `others` that have gone on in a group without `rank`, and have not called again since.
[[nodiscard]] std::vector<int> gone_on_without(int rank, const std::vector<int>& others, const ShrinkJournal& journal,
                                               const ShrinkRequests& requests);

}  // namespace ddp::detail
