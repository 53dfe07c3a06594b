#pragma once
// SurvivorAgreement: carries out one call of shrink() until it is decided. It needs only the store and the survivors,
// so it works when the group has failed. shrink_group() makes it on its stack.
//
// The ranks that exclude the same ranks meet in a round, which has a counter of arrivals. A rank that sees that all
// have arrived, and that no other side prevents it, writes that into the journal. A rank that gives up writes that the
// round is closed. Any rank may decide, so none waits for one that is delayed or dies; the first entry counts for all
// (consensus by a compare-and-set log; journal.hpp, docs/design/012-shrink.md).

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.hpp"
#include "worker_lib/src/bootstrap/peer_states.hpp"
#include "worker_lib/src/group/shrink/journal.hpp"
#include "worker_lib/src/group/shrink/sides.hpp"

namespace ddp::detail {

/// The state that a rank keeps between its calls of shrink(). GroupImpl owns it.
struct ShrinkHistory {
    std::uint64_t calls = 0;
    ShrinkJournal journal;
    /// The last round that this rank has joined, by label. If the store was lost during the add, `counted` is false and
    /// the rank may or may not have been counted.
    struct Joined {
        std::uint64_t round = 0;
        bool counted = false;
    };
    std::map<std::string, Joined> joined;
    std::map<int, std::uint64_t> refused;  ///< by rank: the last of its calls with another request
};

class SurvivorAgreement {
public:
    /// All references outlive this.
    /// others   the ranks that stay, without this one
    SurvivorAgreement(const GroupSpec& spec, const PeerStates& backend, ShrinkHistory& history,
                      const std::vector<int>& excluded, std::vector<int> others);

    /// Returns the number of the round in which all have met. Throws Mismatch, PeerLost or Timeout, naming the ranks.
    [[nodiscard]] std::uint64_t reach();
    /// Throws PeerLost if a rank that stays is known to be lost.
    void check_alive() const;
    /// Writes that this rank does not go on in the agreed group, which could not be formed. Call it after reach().
    void take_back(std::uint64_t round);

private:
    [[nodiscard]] std::string key(const std::string& name) const;
    [[nodiscard]] std::string count_key(std::uint64_t round) const;
    [[nodiscard]] bool is_open(std::uint64_t round) const { return journal().outcome(label_, round) == nullptr; }
    [[nodiscard]] const ShrinkJournal& journal() const { return history_.journal; }

    void end_call(ShrinkRequest::State state);
    void catch_up();
    void wait_for_entry();
    void try_append(const std::string& entry);
    [[nodiscard]] bool meet(std::uint64_t round);
    void join(std::uint64_t round);
    [[nodiscard]] bool obey(std::uint64_t round) const;
    void report_presence(const ShrinkRequests& requests);
    void check_and_decide(std::uint64_t round);
    void decide(std::uint64_t round, const ShrinkRequests& requests);
    [[nodiscard]] ShrinkRequests read_requests(std::vector<int> ranks) const;
    void compare(const ShrinkRequests& requests);
    [[nodiscard]] bool agrees(int rank, const ShrinkRequest& theirs);
    [[nodiscard]] std::vector<int> excluded_by_either(int rank, const ShrinkRequest& theirs) const;
    [[nodiscard]] std::optional<RivalSide> rival(const ShrinkRequests& requests) const;
    [[nodiscard]] bool counts_as_lost(int rank) const;
    [[nodiscard]] Presence presence_of(int rank, const ShrinkRequests& requests) const;
    [[nodiscard]] std::string complaint(const RivalSide& rival) const;
    void check_not_left_behind(const ShrinkRequests& requests) const;
    [[noreturn]] void report_absent() const;

    const GroupSpec& spec_;
    const PeerStates& backend_;
    ShrinkHistory& history_;
    ShrinkRequest request_;
    const std::vector<int> others_;
    const std::string label_;
    const ddprun::TimePoint began_;
    const ddprun::TimePoint deadline_;
    std::vector<int> unheard_;                     ///< those of others_ that have not published the same request so far
    std::optional<ddprun::TimePoint> full_since_;  ///< time since which all ranks have arrived
    bool disagree_ = false;
};

}  // namespace ddp::detail
