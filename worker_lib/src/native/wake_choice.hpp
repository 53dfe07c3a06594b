#pragma once
// WakeChoice: whether the progress thread is woken when an operation is queued, or left asleep because the caller is
// about to wait for it and will run it itself. Waking for nothing costs ten times what an operation of 64 KiB takes;
// not waking delays one that nobody waits for by up to twice kPatience. Pure; learns from what has happened.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

namespace ddp::detail {

class WakeChoice {
public:
    /// Between two looks. What is seen lying twice, its caller has left for something else: after once to twice this.
    static constexpr auto kPatience = std::chrono::milliseconds(1);

    /// An operation has been queued; `others` before it are there still. True: wake the progress thread.
    [[nodiscard]] bool wake(bool others) {
        news_ = true;
        if (eager_ == 0 && others) unclaimed();
        if (eager_ == 0) return false;
        --eager_;
        return true;
    }

    /// Whether the last ones were left lying, so that the next ones are taken for such, too.
    [[nodiscard]] bool eager() const { return eager_ > 0; }

    enum class Look { kGoOn, kWake, kStop };
    /// Every kPatience. `first`: the number of the operation that is first in the queue and waits to be taken, or 0.
    /// kStop: none has come for so long that looking is of no use before the next one.
    [[nodiscard]] Look look(std::uint64_t first) {
        const bool lain = first != 0 && first == seen_;
        const bool news = std::exchange(news_, false) || first != 0;
        seen_ = first;
        idle_ = news ? 0 : idle_ + 1;
        if (!lain) return idle_ > kIdle ? Look::kStop : Look::kGoOn;
        unclaimed();
        return Look::kWake;
    }

    /// A thread that waits has taken one.
    void claimed() {
        if (++claimed_ >= kTrust) stretch_ = kShortest;
    }

    /// Nobody took one in time: for a while no more are left lying, longer if this happens again.
    void unclaimed() {
        eager_ = stretch_;
        stretch_ = std::min(2 * stretch_, kLongest);
        claimed_ = 0;
    }

private:
    static constexpr int kShortest = 32;  ///< operations
    static constexpr int kLongest = 512;
    static constexpr int kTrust = 8;
    static constexpr int kIdle = 200;  ///< looks
    int eager_ = 0;                    ///< so many more wake at once
    int stretch_ = kShortest;
    int claimed_ = 0;
    std::uint64_t seen_ = 0;  ///< at the last look
    bool news_ = false;       ///< since then
    int idle_ = 0;            ///< looks since the last news
};

}  // namespace ddp::detail
