#pragma once
// WakeChoice: decides whether the progress thread is woken when an operation is queued, or left asleep because the
// caller is about to wait for the operation and will run it itself. A needless wake-up takes longer than a small
// operation (docs/benchmarks/decisions.md#wake-choice). A missing one delays an operation whose caller computes
// meanwhile by up to twice kInterval. Pure: it learns from the reports of JobQueue.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

namespace ddp::detail {

class WakeChoice {
public:
    /// The time between two looks of the progress thread. An operation that is seen by two looks is unclaimed.
    static constexpr auto kInterval = std::chrono::milliseconds(1);

    /// Notes that an operation has been queued. `others`: earlier ones are still queued. Returns whether to wake the
    /// progress thread.
    [[nodiscard]] bool wake(bool others) {
        news_ = true;
        if (eager_ == 0 && others) unclaimed();
        if (eager_ == 0) return false;
        --eager_;
        return true;
    }

    /// Returns whether the last operations were unclaimed, so that the next ones are expected to be, too.
    [[nodiscard]] bool eager() const { return eager_ > 0; }

    enum class Look { kGoOn, kWake, kStop };
    /// Returns the next action of the progress thread after a look, every kInterval. kStop: no operation was queued
    /// during the last kMaxIdle looks, so looking is useless before the next one.
    /// first   the number of the operation that is first in the queue and waits to be taken, or 0
    [[nodiscard]] Look look(std::uint64_t first) {
        const bool seen_before = first != 0 && first == seen_;
        const bool news = std::exchange(news_, false) || first != 0;
        seen_ = first;
        idle_ = news ? 0 : idle_ + 1;
        if (!seen_before) return idle_ > kMaxIdle ? Look::kStop : Look::kGoOn;
        unclaimed();
        return Look::kWake;
    }

    /// Notes that a waiting thread has taken an operation.
    void claimed() {
        if (++claimed_ >= kTrust) stretch_ = kMinStretch;
    }

    /// Notes that no thread took an operation in time. For a while each new one wakes the progress thread, for longer
    /// if this happens again.
    void unclaimed() {
        eager_ = stretch_;
        stretch_ = std::min(2 * stretch_, kMaxStretch);
        claimed_ = 0;
    }

private:
    static constexpr int kMinStretch = 32;  ///< operations
    static constexpr int kMaxStretch = 512;
    static constexpr int kTrust = 8;      ///< operations that waiting threads take one after another
    static constexpr int kMaxIdle = 200;  ///< looks
    int eager_ = 0;                       ///< number of next operations that wake the progress thread at once
    int stretch_ = kMinStretch;
    int claimed_ = 0;
    std::uint64_t seen_ = 0;  ///< the first operation at the last look
    bool news_ = false;       ///< an operation has been queued since
    int idle_ = 0;            ///< looks since the last news
};

}  // namespace ddp::detail
