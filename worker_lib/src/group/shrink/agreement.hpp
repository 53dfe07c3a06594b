#pragma once
// ShrinkAgreement: one call of shrink() until it is decided. It needs the store and the survivors only, so it works
// when the group does not any more.
//
// Those who exclude the same ranks meet in a round, with a counter for who has come. Whoever sees that all have, and
// that no other side is in the way, writes that into the journal; whoever gives up writes that the round is closed.
// Nobody has to be the one that decides, so nobody waits for one that is held up or dies: what stands in the journal
// first is what all do (see shrink_journal.hpp, and docs/design/012).

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.hpp"
#include "worker_lib/src/backend.hpp"
#include "worker_lib/src/shrink_journal.hpp"
#include "worker_lib/src/shrink_sides.hpp"

namespace ddp::detail {

/// What a rank remembers of its calls of shrink().
struct ShrinkHistory {
    std::uint64_t calls = 0;
    ShrinkJournal journal;
    /// By label: the last round in which this rank has been counted; or may have been, for the store was lost
    /// meanwhile.
    struct Joined {
        std::uint64_t round = 0;
        bool counted = false;
    };
    std::map<std::string, Joined> joined;
    std::map<int, std::uint64_t> refused;  ///< by rank: the last of its calls that wanted something else
};

class ShrinkAgreement {
public:
    /// All arguments outlive this. `others`: those who stay, without this rank.
    ShrinkAgreement(const GroupSpec& spec, const BackendImpl& backend, ShrinkHistory& history,
                    const std::vector<int>& excluded, std::vector<int> others);

    /// The number of the round in which all have met. Throws Mismatch, PeerLost or Timeout, naming the ranks.
    [[nodiscard]] std::uint64_t reach();
    /// Throws PeerLost if one of those who stay is known to be gone.
    void check_alive() const;
    /// After reach(): this rank does not go on in the group on which all have agreed, for it could not be formed.
    void take_back(std::uint64_t round);

private:
    [[nodiscard]] std::string key(const std::string& name) const;
    [[nodiscard]] std::string count_key(std::uint64_t round) const;
    [[nodiscard]] bool is_open(std::uint64_t round) const { return journal().outcome(label_, round) == nullptr; }
    [[nodiscard]] const ShrinkJournal& journal() const { return history_.journal; }

    void end_call(ShrinkWish::State state);
    void catch_up();
    void wait_for_entry();
    void try_append(const std::string& entry);
    [[nodiscard]] bool meet(std::uint64_t round);
    void join(std::uint64_t round);
    [[nodiscard]] bool obey(std::uint64_t round) const;
    void tell_who_is_there(const ShrinkWishes& wishes);
    void look_around(std::uint64_t round);
    void decide(std::uint64_t round, const ShrinkWishes& wishes);
    [[nodiscard]] ShrinkWishes read_wishes(std::vector<int> ranks) const;
    void hear(const ShrinkWishes& wishes);
    [[nodiscard]] bool agrees(int rank, const ShrinkWish& theirs);
    [[nodiscard]] std::vector<int> excluded_by_either(int rank, const ShrinkWish& theirs) const;
    [[nodiscard]] std::optional<RivalSide> rival(const ShrinkWishes& wishes) const;
    [[nodiscard]] bool counts_as_gone(int rank) const;
    [[nodiscard]] Presence presence_of(int rank, const ShrinkWishes& wishes) const;
    [[nodiscard]] std::string complaint(const RivalSide& rival) const;
    void check_not_left_behind(const ShrinkWishes& wishes) const;
    [[noreturn]] void report_absent() const;

    const GroupSpec& spec_;
    const BackendImpl& backend_;
    ShrinkHistory& history_;
    ShrinkWish wish_;
    const std::vector<int> others_;
    const std::string label_;
    const ddprun::TimePoint began_;
    const ddprun::TimePoint deadline_;
    std::vector<int> unheard_;                     ///< of others_: they have not said so far that they want the same
    std::optional<ddprun::TimePoint> full_since_;  ///< all have come to this round
    bool disagree_ = false;
};

}  // namespace ddp::detail
