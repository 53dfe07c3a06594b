#pragma once
// ShrinkJournal: the decisions about the shrinks of one group, in the order in which all of its ranks read them (a
// replicated log). Each entry is a key of the store that is written once, by a rank that has read all entries before
// it, so of two contradicting decisions the second is never written. Pure. GroupImpl owns it in ShrinkHistory; one
// thread at a time.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.hpp"

namespace ddp::detail {

/// Returns the label of a set of excluded ranks, for keys and group names: "3,5", or a hash of it; "none" for none.
[[nodiscard]] std::string label_of(const std::vector<int>& excluded);

class ShrinkJournal {
public:
    /// The result of a round, in which the ranks that exclude the same ranks meet.
    enum class Outcome {
        kMet,      ///< all survivors were present, and go on
        kClosed,   ///< one of them gave up: the others try the next round
        kRefused,  ///< they must not go on
    };
    /// A decided round.
    struct Round {
        Outcome outcome = Outcome::kClosed;
        std::string text;  ///< kRefused: why
    };
    /// A round of kMet.
    struct Formed {
        std::string label;
        std::uint64_t round = 0;
        std::vector<int> excluded;
        std::set<int> failed;  ///< ranks that could not connect to all others: they do not go on

        [[nodiscard]] bool holds(int rank) const;
    };

    // The texts of entries. The first one about a round counts; later ones change nothing.
    [[nodiscard]] static std::string met(std::uint64_t round, const std::vector<int>& excluded);
    [[nodiscard]] static std::string closed(std::uint64_t round, std::string_view label);
    [[nodiscard]] static std::string refused(std::uint64_t round, std::string_view label, std::string_view why);
    [[nodiscard]] static std::string failed(std::uint64_t round, std::string_view label, int rank);
    [[nodiscard]] static std::string death(int rank);       ///< the kernel of its host reports the end of its process
    [[nodiscard]] static std::string accusation(int rank);  ///< another rank reports it lost
    [[nodiscard]] static std::string presence(int rank);    ///< the rank itself denies that

    /// Applies the entry number next(). Ignores any other text.
    void read(const std::string& entry, ddprun::TimePoint now);
    /// Returns the number of the first entry that has not been read; they count from 1.
    [[nodiscard]] std::uint64_t next() const { return entries_ + 1; }

    /// Returns the round in which the ranks that exclude `label` meet: the first that is not decided.
    [[nodiscard]] std::uint64_t open_round(const std::string& label) const;
    /// Returns null for an open round.
    [[nodiscard]] const Round* outcome(const std::string& label, std::uint64_t round) const;
    [[nodiscard]] const std::vector<Formed>& formed() const { return formed_; }
    /// Returns the last group formed that holds the rank; null: none. Earlier ones are over for this rank.
    [[nodiscard]] const Formed* last_group_of(int rank) const;
    /// Returns the last group in which the rank goes on. It may still be in that one if a later one could not be
    /// formed.
    [[nodiscard]] const Formed* group_of(int rank) const;
    [[nodiscard]] bool has_failed(const std::string& label, std::uint64_t round, int rank) const;
    /// Returns the time at which the rank was reported lost; nothing if it was not, or has denied it.
    [[nodiscard]] std::optional<ddprun::TimePoint> accused_since(int rank) const;
    /// Returns whether the rank was ever reported lost, even if it has denied that since.
    [[nodiscard]] bool ever_accused(int rank) const { return accused_.contains(rank); }
    [[nodiscard]] bool is_dead(int rank) const { return dead_.contains(rank); }

private:
    void settle(const std::string& label, std::uint64_t round, Round outcome);

    std::uint64_t entries_ = 0;
    std::map<std::string, std::vector<Round>> rounds_;  ///< by label; the first is round 1
    std::vector<Formed> formed_;
    std::map<int, ddprun::TimePoint> accused_;
    std::set<int> present_;
    std::set<int> dead_;
};

}  // namespace ddp::detail
