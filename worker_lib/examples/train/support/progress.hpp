#pragma once
// Progress: measures the speed of a run and the communication that backward did not hide, and prints a line now and
// then.
//
// It uses the trainer's clock, not ReducerStats::exposed, which begins with finish_backward. If ranks outnumber
// cores, the last buckets may use this thread's core, and be done, before finish_backward begins.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numbers>
#include <string>
#include <vector>

#include "ddp/ddp.hpp"

namespace train {

class Progress {
public:
    using Clock = std::chrono::steady_clock;

    /// `shown`: whether this rank prints lines, on stderr. The time of the steps begins now.
    Progress(bool shown, std::size_t last_step, std::size_t global_batch)
        : shown_(shown), last_step_(last_step), global_batch_(global_batch) {}

    void note(const std::string& line) const {
        if (shown_) std::fprintf(stderr, "train: %s\n", line.c_str());
    }

    /// Records that backward has computed a gradient. The wait begins with the last one of a step.
    void computed(Clock::time_point at = Clock::now()) { computed_ = at; }
    /// Records that this step's gradients are averages: the wait ends.
    void averaged(Clock::time_point at = Clock::now()) { waits_ms_.push_back(1e3 * seconds(at - computed_)); }

    /// Records the end of a step. Prints the first, the last and every 20th part of the run, and after 5 s of silence.
    void end_step(std::size_t step, double loss) {
        ended_ = Clock::now();
        const bool due = waits_ms_.size() == 1 || step == last_step_ || step % std::max(last_step_ / 20, 1ul) == 0;
        if (!shown_ || (!due && ended_ - printed_ < std::chrono::seconds(5))) return;
        std::fprintf(stderr, "step %zu/%zu  loss %.4f  %.2f bits/byte  %.0f samples/s\n", step, last_step_, loss,
                     loss / std::numbers::ln2, samples_per_s());
        printed_ = ended_;
    }

    /// Returns the samples of all ranks per second.
    [[nodiscard]] double samples_per_s() const {
        return static_cast<double>(waits_ms_.size() * global_batch_) / std::max(seconds(ended_ - began_), 1e-9);
    }

    /// Returns the median over the steps of the shortest wait of all ranks, in milliseconds; 0 without steps. The rank
    /// that waits least is the last one to end its backward, so it waits for communication alone; the others also wait
    /// for its backward. Collective, with the same number of steps on every rank.
    [[nodiscard]] double exposed_ms(ddp::Context& context) const {
        std::vector<double> least = waits_ms_;
        context.world().all_reduce(least, ddp::ReduceOp::Min).wait();
        if (least.empty()) return 0;
        const auto middle = least.begin() + static_cast<std::ptrdiff_t>(least.size() / 2);
        std::ranges::nth_element(least, middle);
        return *middle;
    }

private:
    static double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

    bool shown_;
    std::size_t last_step_;
    std::size_t global_batch_;
    Clock::time_point began_ = Clock::now(), ended_ = began_, printed_ = began_, computed_;
    std::vector<double> waits_ms_;  // of each step
};

}  // namespace train
