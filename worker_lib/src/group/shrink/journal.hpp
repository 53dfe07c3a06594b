#pragma once
// ShrinkJournal: what the ranks of a group have decided about its shrinks, in the one order in which all of them read
// it. Each entry is a key of the store that is written once, by a rank that has read all entries before it: so of two
// decisions that exclude each other the second is never written. Pure; owned by one thread at a time.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.hpp"

namespace ddp::detail {

/// For the names of keys and groups: "3,5", or a hash of it; "nobody".
[[nodiscard]] std::string label_of(const std::vector<int>& excluded);

class ShrinkJournal {
public:
    /// What became of a round, in which those who exclude the same ranks meet.
    enum class Outcome {
        kMet,      ///< all survivors were there and go on
        kClosed,   ///< one of them gave up: the others go on to the next round
        kRefused,  ///< they must not go on
    };
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

    // The texts of entries. The first about a round counts, later ones change nothing.
    [[nodiscard]] static std::string met(std::uint64_t round, const std::vector<int>& excluded);
    [[nodiscard]] static std::string closed(std::uint64_t round, std::string_view label);
    [[nodiscard]] static std::string refused(std::uint64_t round, std::string_view label, std::string_view why);
    [[nodiscard]] static std::string failed(std::uint64_t round, std::string_view label, int rank);
    [[nodiscard]] static std::string death(int rank);       ///< "its process has ended", says the kernel of its host
    [[nodiscard]] static std::string accusation(int rank);  ///< "it is gone", says somebody
    [[nodiscard]] static std::string presence(int rank);    ///< "I am not", says the rank

    /// Takes in the entry number next(). Text that is none of the above is passed over.
    void read(const std::string& entry, ddprun::TimePoint now);
    /// The number of the first entry that has not been read; they count from 1.
    [[nodiscard]] std::uint64_t next() const { return entries_ + 1; }

    /// The round in which those meet who exclude `label`: nothing is decided about it so far.
    [[nodiscard]] std::uint64_t open_round(const std::string& label) const;
    /// Null: it is open.
    [[nodiscard]] const Round* outcome(const std::string& label, std::uint64_t round) const;
    [[nodiscard]] const std::vector<Formed>& formed() const { return formed_; }
    /// The last of them that holds the rank; null: none. Those before it are over, for this rank.
    [[nodiscard]] const Formed* last_group_of(int rank) const;
    /// The last of them in which it goes on: it may still be in that if a later one could not be formed.
    [[nodiscard]] const Formed* group_of(int rank) const;
    [[nodiscard]] bool has_failed(const std::string& label, std::uint64_t round, int rank) const;
    /// Since when it stands here that the rank is gone; nothing: it does not, or the rank has denied it.
    [[nodiscard]] std::optional<ddprun::TimePoint> accused_since(int rank) const;
    /// Whether anybody has ever said so. One that has denied it is not accused again.
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
