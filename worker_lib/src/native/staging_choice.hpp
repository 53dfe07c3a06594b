#pragma once
// StagingChoice: whether what passes through a staging slot is copied past the caches. It depends on whether the ranks'
// cores share one, which on a virtual machine changes within minutes; so both ways are timed, the slower one every now
// and then. Pure; each rank chooses for itself.

#include <array>
#include <cstddef>
#include <cstdint>

namespace ddp::detail {

class StagingChoice {
public:
    /// For the next operation: past the caches or not.
    [[nodiscard]] bool next() {
        const std::uint64_t number = count_++;
        if (number < 2) return number == 1;  // nothing is known
        const bool better = cost_[1] < cost_[0];
        return number % kAgain == 0 ? !better : better;
    }

    /// What it took.
    void took(bool streamed, double seconds, std::size_t bytes) {
        double& cost = cost_[streamed ? 1 : 0];
        const double now = seconds / static_cast<double>(bytes);
        cost = cost == 0 ? now : cost + (now - cost) / 2;
    }

private:
    static constexpr std::uint64_t kAgain = 32;  ///< operations after which the slower one is tried
    std::uint64_t count_ = 0;
    std::array<double, 2> cost_{};  ///< seconds for a byte, the last few times
};

}  // namespace ddp::detail
