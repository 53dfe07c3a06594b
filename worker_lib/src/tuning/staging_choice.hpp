#pragma once
// StagingChoice: whether what passes through staging slots is copied past the caches. It depends on whether the ranks'
// cores share one, which on a virtual machine changes within minutes; so both ways are timed, the slower one every now
// and then. What is timed is the work of a whole node, so one rank chooses for all of it. Pure.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace ddp::detail {

class StagingChoice {
public:
    static constexpr std::size_t kLeast = 1u << 20;  ///< bytes from which on it matters

    /// For the next operation of so many bytes: past the caches or not.
    [[nodiscard]] bool streams(std::size_t bytes) const {
        const Class& known = classes_[class_of(bytes)];
        const std::uint64_t turn = known.count / kTurn;
        if (turn < kFirstTurns) return turn % 2 == 1;
        const bool better = known.cost(1) < known.cost(0);
        const bool again = known.count % kAgain < kTurn || turn == kSoon || turn == 2 * kSoon;
        return again ? !better : better;
    }

    /// What the last one of this size did. Its successor stages its first piece in the same way, before the node has
    /// met and knows the choice.
    [[nodiscard]] bool last(std::size_t bytes) const { return classes_[class_of(bytes)].last; }

    /// What it took, the first piece included.
    void took(bool streamed, double seconds, std::size_t bytes) {
        Class& known = classes_[class_of(bytes)];
        const bool as_before = known.count++ > 0 && known.last == streamed;
        known.last = streamed;
        if (!as_before) return;  // its pages were new, or its first piece went the other way
        const std::size_t way = streamed ? 1 : 0;
        known.recent[way][known.timed[way]++ % kRecent] = seconds / static_cast<double>(bytes);
    }

private:
    static constexpr std::uint64_t kTurn = 2;  ///< operations in one way, of which the second is timed
    static constexpr std::uint64_t kFirstTurns = 3;
    /// After so many the slower way has a turn again; training repeats in even numbers.
    static constexpr std::uint64_t kAgain = 61;
    /// It has two more before, in these turns: a program's first operations are those that are most often disturbed.
    static constexpr std::uint64_t kSoon = 8;
    static constexpr std::size_t kRecent = 4;
    static constexpr std::size_t kClasses = 12;
    static constexpr double kNever = std::numeric_limits<double>::infinity();

    /// What is known of operations of similar size: others cost something else for a byte.
    struct Class {
        std::uint64_t count = 0;
        bool last = false;
        std::array<std::size_t, 2> timed{};
        std::array<std::array<double, kRecent>, 2> recent{
            {{kNever, kNever, kNever, kNever}, {kNever, kNever, kNever, kNever}}};

        /// Seconds for a byte: the least of the last few times, for the others were disturbed by something else.
        [[nodiscard]] double cost(std::size_t way) const { return *std::ranges::min_element(recent[way]); }
    };
    static std::size_t class_of(std::size_t bytes) {
        return std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(bytes / kLeast)), kClasses - 1);
    }

    std::array<Class, kClasses> classes_;
};

}  // namespace ddp::detail
