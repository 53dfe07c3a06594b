#pragma once
// Who waits for whom in one group of the job, from the boards of its members. Pure, and near-linear in what the boards
// hold: a thousand ranks with many transfers each are looked at while the daemon's other work waits.

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "rendezvous/coordinator/messages_inspect.hpp"

namespace ddprun::coordinator {

/// A rank in one group.
struct StallMember {
    const RankBoard* board = nullptr;
    const BoardGroup* group = nullptr;
    int index = 0;  ///< of the group on that board
};

/// An operation that somebody waits for, and for whom.
struct StallWait {
    int rank = 0;  ///< of the job
    StallMember who;
    const BoardOperation* operation = nullptr;
    std::chrono::nanoseconds waited{0};
    int peer = -1;                             ///< of a transfer: rank of the job; -1: the board does not say
    std::set<int> for_ranks = {};              ///< empty: all have come, unless `somebody_unknown`
    const BoardOperation* crossing = nullptr;  ///< a transfer of the peer with us that fits none of ours
    const BoardOperation* unasked = nullptr;   ///< what has come from the peer under another tag
    bool somebody_unknown = false;             ///< it waits for ranks of which the boards do not say who they are
};

/// Rank in the job of rank `index` of a group; -1: the board does not say.
[[nodiscard]] int world_rank(const BoardGroup& group, int index);
/// Whether the list of its members has that rank of the job.
[[nodiscard]] bool has_member(const BoardGroup& group, int rank);

/// The collective `seq` of the group on a member's board; null: it is not there.
[[nodiscard]] const BoardOperation* find_collective(const StallMember& member, std::uint64_t seq);

class GroupWaits {
public:
    GroupWaits(std::string name, std::map<int, StallMember> members)
        : name_(std::move(name)), members_(std::move(members)) {}

    /// Finds who waits for an operation. Those who have been for `patience` speak: of the oldest such collective the
    /// one who has been there longest, for all wait for the same; of sends and receives each, up to kMaxTransfers per
    /// rank.
    void look(std::chrono::nanoseconds patience);

    [[nodiscard]] const std::string& name() const { return name_; }
    [[nodiscard]] const std::map<int, StallMember>& members() const { return members_; }
    /// Ranks that wait for any operation of the group, however short.
    [[nodiscard]] const std::set<int>& waiting() const { return waiting_; }
    [[nodiscard]] const std::vector<StallWait>& speakers() const { return speakers_; }
    /// Ranks that are stuck in the collective that a speaker speaks of, or the two ends of its transfer.
    [[nodiscard]] std::vector<int> beside(const StallWait& speaker) const;
    /// Those of them, and of the ranks that a collective waits for, whose process is stopped.
    [[nodiscard]] std::vector<int> stopped(const StallWait& speaker) const;

    static constexpr std::size_t kMaxTransfers = 64;

private:
    using Side = std::tuple<int, int, bool, std::int64_t>;  ///< rank, peer, whether it sends, tag

    void look_at(int rank, const StallMember& member, std::chrono::nanoseconds patience);
    void speak_for_collective();
    void find_other_side(StallWait& wait) const;
    [[nodiscard]] const BoardOperation* unasked_like(const StallWait& wait) const;

    std::string name_;
    std::map<int, StallMember> members_;  ///< by rank of the job
    std::set<int> waiting_;
    std::vector<StallWait> in_collective_;  ///< in the oldest that somebody is stuck in
    std::vector<StallWait> speakers_;
    std::set<Side> sides_;
    std::map<std::pair<int, int>, const BoardOperation*> transfers_;  ///< by rank and peer: the first that is stuck
    std::set<std::pair<int, int>> matched_;                           ///< pairs that have both sides of a transfer
};

}  // namespace ddprun::coordinator
