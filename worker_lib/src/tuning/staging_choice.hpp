#pragma once
// StagingChoice: decides whether data that passes through staging slots is copied past the caches. Which way is faster
// depends on whether the ranks' cores share a cache, which on a virtual machine changes within minutes
// (docs/benchmarks/decisions.md#staging-choice). So it times both ways, the slower one from time to time. The measured
// time is that of a whole node, so one rank chooses for all its ranks. Pure.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace ddp::detail {

class StagingChoice {
public:
    static constexpr std::size_t kLeast = 1u << 20;  ///< bytes; for less it does not matter

    /// Returns whether the next operation of so many bytes copies past the caches.
    [[nodiscard]] bool streams(std::size_t bytes) const {
        const Class& known = classes_[class_of(bytes)];
        const std::uint64_t run = known.count / kRun;
        if (run < kFirstRuns) return run % 2 == 1;
        const bool better = known.cost(1) < known.cost(0);
        const bool again = known.count % kAgain < kRun || run == kSoon || run == 2 * kSoon;
        return again ? !better : better;
    }

    /// Returns the way of the last operation of this size. The next one stages its first piece in the same way, because
    /// the node has not yet met and does not know the choice.
    [[nodiscard]] bool last(std::size_t bytes) const { return classes_[class_of(bytes)].last; }

    /// Notes how long an operation took, its first piece included.
    void took(bool streamed, double seconds, std::size_t bytes) {
        Class& known = classes_[class_of(bytes)];
        const bool as_before = known.count++ > 0 && known.last == streamed;
        known.last = streamed;
        if (!as_before) return;  // its pages were new, or its first piece was staged the other way
        const std::size_t way = streamed ? 1 : 0;
        known.recent[way][known.timed[way]++ % kRecent] = seconds / static_cast<double>(bytes);
    }

private:
    static constexpr std::uint64_t kRun = 2;  ///< operations in a row in one way; the second is timed
    static constexpr std::uint64_t kFirstRuns = 3;
    /// Number of operations after which the slower way is tried again. Odd, because training repeats in even numbers.
    static constexpr std::uint64_t kAgain = 61;
    /// The slower way is tried twice earlier, in the runs of this number and its double, because a program's first
    /// operations are disturbed most often.
    static constexpr std::uint64_t kSoon = 8;
    static constexpr std::size_t kRecent = 4;
    static constexpr std::size_t kClasses = 12;
    static constexpr double kNever = std::numeric_limits<double>::infinity();

    /// The times of operations of similar size. Other sizes have another cost per byte.
    struct Class {
        std::uint64_t count = 0;
        bool last = false;
        std::array<std::size_t, 2> timed{};
        std::array<std::array<double, kRecent>, 2> recent{
            {{kNever, kNever, kNever, kNever}, {kNever, kNever, kNever, kNever}}};

        /// Returns seconds per byte: the minimum of the last few times, because longer ones were disturbed.
        [[nodiscard]] double cost(std::size_t way) const { return *std::ranges::min_element(recent[way]); }
    };
    static std::size_t class_of(std::size_t bytes) {
        return std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(bytes / kLeast)), kClasses - 1);
    }

    std::array<Class, kClasses> classes_;
};

}  // namespace ddp::detail
