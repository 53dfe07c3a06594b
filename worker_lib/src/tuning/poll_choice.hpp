#pragma once
// PollChoice: decides whether a receive polls for its message for a moment, or looks for it once. Polling gains where
// both ranks come at the same time, and loses where a program posts its receives long before their messages are sent
// (docs/benchmarks/decisions.md#poll-choice). How long it polls: Waiter
// (native/shm). Pure: it learns from the receives before.

namespace ddp::detail {

class PollChoice {
public:
    /// Returns whether the next receive polls.
    [[nodiscard]] bool polls() const { return missed_ < kMaxMissed || missed_ % kAgain == 0; }

    /// Notes that a receive got its message at once.
    void found() { missed_ = 0; }
    /// Notes that a receive found no message, however it looked.
    void missed() { ++missed_; }

private:
    static constexpr unsigned kMaxMissed = 4;  ///< receives in a row after which the next ones look once
    static constexpr unsigned kAgain = 16;     ///< one receive of so many polls nevertheless
    unsigned missed_ = 0;                      ///< receives in a row
};

}  // namespace ddp::detail
