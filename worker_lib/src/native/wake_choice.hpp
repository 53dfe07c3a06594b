#pragma once
// WakeChoice: whether the progress thread is woken when an operation is queued, or left asleep because the caller is
// about to wait for it and will run it itself. Waking for nothing costs ten times what an operation of 64 KiB takes;
// not waking delays one that nobody waits for by kPatience. Pure; learns from what has happened.

#include <algorithm>
#include <chrono>

namespace ddp::detail {

class WakeChoice {
public:
    /// How long an operation may lie about before it is clear that its caller does something else.
    static constexpr auto kPatience = std::chrono::milliseconds(1);

    /// An operation has been queued; `others` before it are there still. True: wake the progress thread.
    [[nodiscard]] bool wake(bool others) {
        if (eager_ == 0 && others) unclaimed();
        if (eager_ == 0) return false;
        --eager_;
        return true;
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
    int eager_ = 0;  ///< so many more wake at once
    int stretch_ = kShortest;
    int claimed_ = 0;
};

}  // namespace ddp::detail
