#pragma once
// Progress: shows the training's progress on stderr, as a bar on a terminal, as lines elsewhere. Only rank 0 shows it.

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include "train/options.hpp"

namespace train {

/// State after a step. `elapsed` and `waiting` count from the beginning of the loop, in this process.
struct StepReport {
    std::size_t step = 0;
    std::size_t last_step = 0;
    std::size_t steps_done = 0;  ///< by this process
    double loss = 0;             ///< nats per byte
    double samples = 0;          ///< seen by all ranks since the loop began
    std::chrono::duration<double> elapsed{};
    /// Part of `elapsed`: waited for the gradients of all ranks, that is, for slower ranks and for communication
    /// together. exposed_ms counts communication only.
    std::chrono::duration<double> waiting{};
};

/// Returns "step 20/150  loss 3.4121  4.92 bits/byte  5230 samples/s  rank 0 waits 12 %  0:25 left".
[[nodiscard]] std::string describe(const StepReport& report);

/// Returns "[##------] 30/120  0:45 left  loss 2.00 = 2.89 bits/byte  1024 samples/s  waits 10 %" in at most `columns`
/// characters; the bar gets the columns that the text leaves.
[[nodiscard]] std::string describe_with_bar(const StepReport& report, std::size_t columns);

class Progress {
public:
    Progress(ProgressStyle style, int rank);
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    /// Prints a line by itself.
    void note(std::string_view line);
    /// Shows a step, unless the last one was shown just before.
    void step(const StepReport& report);

private:
    void draw_bar(const StepReport& report);
    void end_bar();

    ProgressStyle style_;
    bool bar_open_ = false;
    std::chrono::steady_clock::time_point shown_{};
};

}  // namespace train
