#pragma once
// What a person sees of the training: a bar on a terminal, a line now and then elsewhere. On stderr, so that stdout
// carries the result alone. Only rank 0 shows anything.

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include "train/options.hpp"

namespace train {

/// After a step. `elapsed` and `waiting` are since the loop began, in this process.
struct StepReport {
    std::size_t step = 0;
    std::size_t last_step = 0;
    std::size_t steps_done = 0;  ///< by this process
    double loss = 0;             ///< nats per byte
    double samples = 0;          ///< seen by all ranks since the loop began
    std::chrono::duration<double> elapsed{};
    std::chrono::duration<double>
        waiting{};  ///< of that: until the gradients of all ranks were there. For slower ranks as well as
                    ///< for communication, which is all that exposed_ms counts
};

/// "step 20/150  loss 3.4121  4.92 bits/byte  5230 samples/s  rank 0 waits 12 %  0:25 left"
[[nodiscard]] std::string describe(const StepReport& report);

/// "[##------] 30/120  0:45 left  loss 2.00 = 2.89 bits/byte  1024 samples/s  waits 10 %" in at most `columns`
/// characters; the bar takes what the text leaves.
[[nodiscard]] std::string describe_with_bar(const StepReport& report, std::size_t columns);

class Progress {
public:
    Progress(ProgressStyle style, int rank);
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    void note(std::string_view line);
    void step(const StepReport& report);

private:
    void draw_bar(const StepReport& report);
    void end_bar();

    ProgressStyle style_;
    bool bar_open_ = false;
    std::chrono::steady_clock::time_point shown_{};
};

}  // namespace train
