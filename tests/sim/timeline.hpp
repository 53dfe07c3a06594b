#pragma once
// Simulated time and chance. One thread, no clock: a seed is a run.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <utility>

#include "common/clock.hpp"

namespace ddprun::sim {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

/// Runs planned functions in the order of their times; those of one time in the order in which they were planned.
class Timeline {
public:
    [[nodiscard]] TimePoint now() const { return now_; }
    void at(TimePoint when, std::function<void()> what) {
        plan_.emplace(std::pair(std::max(when, now_), ++planned_), std::move(what));
    }
    void after(milliseconds delay, std::function<void()> what) { at(now_ + delay, std::move(what)); }

    /// Returns false when nothing is planned any more.
    bool step() {
        if (plan_.empty()) return false;
        const auto next = plan_.begin();
        now_ = next->first.first;
        const std::function<void()> what = std::move(next->second);
        plan_.erase(next);
        what();
        return true;
    }

private:
    TimePoint now_{1000s};
    std::uint64_t planned_ = 0;
    std::map<std::pair<TimePoint, std::uint64_t>, std::function<void()>> plan_;
};

/// Random numbers without the library's distributions, whose results are not the same everywhere.
class Dice {
public:
    explicit Dice(std::uint64_t seed) : random_(seed) {}
    /// Returns low … high, both included.
    int between(int low, int high) {
        return low + static_cast<int>(random_() % static_cast<std::uint64_t>(high - low + 1));
    }
    milliseconds between(milliseconds low, milliseconds high) {
        return milliseconds(between(static_cast<int>(low.count()), static_cast<int>(high.count())));
    }
    bool percent(int chance) { return between(1, 100) <= chance; }

private:
    std::mt19937_64 random_;
};

}  // namespace ddprun::sim
