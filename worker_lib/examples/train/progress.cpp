#include "train/progress.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <numbers>
#include <utility>

namespace train {
namespace {

constexpr std::size_t kLines = 20;                  // in a whole run, when the steps are short …
constexpr std::chrono::seconds kLongestSilence{5};  // … and when they are long
constexpr std::chrono::milliseconds kBarInterval{100};
constexpr std::size_t kMinBarWidth = 3;  // with these texts, still a line of 80 columns
constexpr std::size_t kMaxBarWidth = 30;

std::string minutes(double seconds) {
    const auto whole = static_cast<long>(std::clamp(seconds, 0.0, 359'999.0) + 0.5);
    return whole < 3600 ? fmt::format("{}:{:02}", whole / 60, whole % 60)
                        : fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

double per_second(const StepReport& report) { return report.samples / std::max(report.elapsed.count(), 1e-9); }

double percent_waiting(const StepReport& report) {
    return 100 * report.waiting.count() / std::max(report.elapsed.count(), 1e-9);
}

std::string time_left(const StepReport& report) {
    const double per_step = report.elapsed.count() / static_cast<double>(std::max<std::size_t>(report.steps_done, 1));
    return minutes(per_step * static_cast<double>(report.last_step - report.step));
}

double bits(double nats) { return nats / std::numbers::ln2; }

std::size_t terminal_columns() {
    winsize size{};
    return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::string describe(const StepReport& report) {
    return fmt::format("step {}/{}  loss {:.4f}  {:.2f} bits/byte  {:.0f} samples/s  rank 0 waits {:.0f} %  {} left",
                       report.step, report.last_step, report.loss, bits(report.loss), per_second(report),
                       percent_waiting(report), time_left(report));
}

std::string describe_with_bar(const StepReport& report, std::size_t columns) {
    const std::string text =
        fmt::format(" {}/{}  {} left  loss {:.2f} = {:.2f} bits/byte  {:.0f} samples/s  waits {:.0f} %", report.step,
                    report.last_step, time_left(report), report.loss, bits(report.loss), per_second(report),
                    percent_waiting(report));
    const std::size_t taken = text.size() + 2;
    const std::size_t width = std::clamp(columns > taken ? columns - taken : 0, kMinBarWidth, kMaxBarWidth);
    const std::size_t filled = report.step * width / std::max<std::size_t>(report.last_step, 1);
    return ("[" + std::string(filled, '#') + std::string(width - filled, '-') + "]" + text).substr(0, columns);
}

Progress::Progress(ProgressStyle style, int rank) : style_(style) {
    if (style_ == ProgressStyle::kAuto) style_ = ::isatty(STDERR_FILENO) ? ProgressStyle::kBar : ProgressStyle::kPlain;
    if (rank != 0) style_ = ProgressStyle::kNone;
}

Progress::~Progress() { end_bar(); }

void Progress::note(std::string_view line) {
    if (style_ == ProgressStyle::kNone) return;
    end_bar();
    fmt::print(stderr, "{}\n", line);
}

void Progress::step(const StepReport& report) {
    if (style_ == ProgressStyle::kNone) return;
    const auto now = std::chrono::steady_clock::now();
    const bool is_edge = report.steps_done == 1 || report.step == report.last_step;
    if (style_ == ProgressStyle::kBar) {
        if (!is_edge && now - shown_ < kBarInterval) return;
        draw_bar(report);
    } else {
        const std::size_t every = std::max<std::size_t>(report.last_step / kLines, 1);
        if (!is_edge && report.step % every != 0 && now - shown_ < kLongestSilence) return;
        fmt::print(stderr, "{}\n", describe(report));
    }
    shown_ = now;
}

void Progress::draw_bar(const StepReport& report) {
    // One column stays free: a line that wraps could not be overwritten.
    fmt::print(stderr, "\r{}\x1b[K", describe_with_bar(report, terminal_columns() - 1));
    std::fflush(stderr);
    bar_open_ = true;
}

void Progress::end_bar() {
    if (!std::exchange(bar_open_, false)) return;
    fmt::print(stderr, "\n");
}

}  // namespace train
