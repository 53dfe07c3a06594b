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

/// The call of one rank, as text in the store: "SERIAL excludes 3 5" during the call, and "SERIAL withdrawn" after it.
/// If the ranks disagreed, "SERIAL excluded 3 5" comes after it instead, so that the others see the difference too.
struct ShrinkRequest {
    enum class State { kWithdrawn, kActive, kDisagreed };

    std::uint64_t serial = 0;  ///< counts the rank's calls
    State state = State::kWithdrawn;
    std::vector<int> excluded;

    [[nodiscard]] bool is_active() const { return state == State::kActive; }

    [[nodiscard]] std::string text() const;
    [[nodiscard]] static ShrinkRequest parse(const std::string& text);
};
/// The requests by rank, of those ranks that have published one.
using ShrinkRequests = std::map<int, ShrinkRequest>;

/// Returns the ranks of a group of `size` that stay.
[[nodiscard]] std::vector<int> side_without(const std::vector<int>& excluded, int size);
[[nodiscard]] bool are_disjoint(const std::vector<int>& a, const std::vector<int>& b);
/// Returns whether side `a` wins over `b`. The larger side wins; if both are equal, the one with the lowest rank.
[[nodiscard]] bool beats(const std::vector<int>& a, const std::vector<int>& b);

/// The known state of an excluded rank. Doubtful: it was reported lost a moment ago, and may still deny it.
enum class Presence { kThere, kDoubtful, kGone };

/// Another side, which excludes all ranks of this one.
struct RivalSide {
    int rank = 0;  ///< a rank of it that is not known to be lost
    std::vector<int> side;
    bool formed = false;  ///< it goes on already; else it wins over this one, complete or not
    bool doubtful = false;
};
/// Returns the side that prevents the ranks that exclude `excluded`, in a group of `size`, from going on. Returns a
/// doubtful one only if there is no other.
[[nodiscard]] std::optional<RivalSide> find_rival(const std::vector<int>& excluded, int size,
                                                  const ShrinkJournal& journal, const ShrinkRequests& requests,
                                                  const std::function<Presence(int)>& presence);

/// Returns those of `others` that have gone on in a group without `rank`, and have not called again since.
[[nodiscard]] std::vector<int> gone_on_without(int rank, const std::vector<int>& others, const ShrinkJournal& journal,
                                               const ShrinkRequests& requests);

}  // namespace ddp::detail
