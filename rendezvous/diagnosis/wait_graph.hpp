#pragma once
// Builds the waits-for graph of one group of the job from the flight records of its members. Pure, and near-linear in
// the size of the records: the daemon's other work waits while a thousand ranks with many transfers each are examined.

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "rendezvous/protocol/inspection.hpp"

namespace ddprun::diagnosis {

using namespace protocol;  // the diagnosis works on these messages

/// The record of one rank in one group.
struct StallMember {
    const RankRecord* record = nullptr;
    const RecordedGroup* group = nullptr;
    int index = 0;  ///< of the group in that flight record
};

/// An operation that a rank waits in, and the ranks that it waits for.
struct StallWait {
    int rank = 0;  ///< of the job
    StallMember member;
    const RecordedOperation* operation = nullptr;
    std::chrono::nanoseconds waited{0};
    int peer = -1;                 ///< of a transfer: rank of the job; -1: the flight record does not say
    std::set<int> for_ranks = {};  ///< empty: all ranks have arrived, unless `unknown_ranks`
    /// A stuck transfer of the peer with this rank, if no two transfers of the pair match.
    const RecordedOperation* crossing = nullptr;
    const RecordedOperation* unmatched = nullptr;  ///< a message of the peer that has arrived under another tag
    bool unknown_ranks = false;                    ///< it waits for ranks that no flight record identifies
};

/// Returns the rank in the job of rank `index` of a group; -1: the flight record does not say.
[[nodiscard]] int world_rank(const RecordedGroup& group, int index);
/// Returns whether the member list of the group has that rank of the job.
[[nodiscard]] bool has_member(const RecordedGroup& group, int rank);

/// Returns the collective `seq` of the group in a member's flight record; null: it is not there.
[[nodiscard]] const RecordedOperation* find_collective(const StallMember& member, std::uint64_t seq);

/// GroupWaits: collects the waits of one group. diagnose() makes one per group, calls find_waits() once and reads the
/// result.
class GroupWaits {
public:
    GroupWaits(std::string name, std::map<int, StallMember> members)
        : name_(std::move(name)), members_(std::move(members)) {}

    /// Finds the ranks that wait, and collects the waits of at least `min_wait`: the longest one in the oldest such
    /// collective, because all its ranks wait for the same ones, and those in sends and receives, up to kMaxTransfers
    /// per rank.
    void find_waits(std::chrono::nanoseconds min_wait);

    [[nodiscard]] const std::string& name() const { return name_; }
    [[nodiscard]] const std::map<int, StallMember>& members() const { return members_; }
    /// Returns the ranks that wait in any operation of the group, however short the wait is.
    [[nodiscard]] const std::set<int>& waiting() const { return waiting_; }
    [[nodiscard]] const std::vector<StallWait>& long_waits() const { return long_waits_; }
    /// Returns the ranks that are stuck in the collective of that wait, or the two ranks of its transfer.
    [[nodiscard]] std::vector<int> participants(const StallWait& wait) const;
    /// Returns those of them whose process is stopped; for a collective, all stopped members of the group.
    [[nodiscard]] std::vector<int> stopped(const StallWait& wait) const;

    static constexpr std::size_t kMaxTransfers = 64;

private:
    using Side = std::tuple<int, int, bool, std::int64_t>;  ///< rank, peer, whether it sends, tag

    void add_member(int rank, const StallMember& member, std::chrono::nanoseconds min_wait);
    void add_collective_wait();
    void find_other_side(StallWait& wait) const;
    [[nodiscard]] const RecordedOperation* unmatched_like(const StallWait& wait) const;

    std::string name_;
    std::map<int, StallMember> members_;  ///< by rank of the job
    std::set<int> waiting_;
    std::vector<StallWait> in_collective_;  ///< the ranks that are stuck in the oldest such collective
    std::vector<StallWait> long_waits_;
    std::set<Side> sides_;
    std::map<std::pair<int, int>, const RecordedOperation*> transfers_;  ///< by rank and peer: the first that is stuck
    std::set<std::pair<int, int>> matched_;                              ///< pairs that have both sides of a transfer
};

}  // namespace ddprun::diagnosis
