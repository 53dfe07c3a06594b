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

constexpr std::size_t kLines = 20;  // in a whole run, when the steps are short …
constexpr std::chrono::seconds kLongestSilence{5};  // … and when they are long
constexpr std::chrono::milliseconds kBarInterval{100};
constexpr std::size_t kBarWidth = 20;

std::string minutes(double seconds) {
    const auto whole = static_cast<long>(std::clamp(seconds, 0.0, 359'999.0) + 0.5);
    return whole < 3600 ? fmt::format("{}:{:02}", whole / 60, whole % 60)
                        : fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::size_t terminal_width() {
    winsize size{};
    return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::string describe(const StepReport& report) {
    const double seconds = std::max(report.elapsed.count(), 1e-9);
    const double per_step = seconds / static_cast<double>(std::max<std::size_t>(report.steps_done, 1));
    return fmt::format("step {}/{}  loss {:.4f}  {:.2f} bits/byte  {:.0f} samples/s  waiting {:.0f} %  {} left", report.step,
                       report.last_step, report.loss, report.loss / std::numbers::ln2, report.samples / seconds,
                       100 * report.waiting.count() / seconds,
                       minutes(per_step * static_cast<double>(report.last_step - report.step)));
}

std::string bar(const StepReport& report, std::size_t width) {
    const std::size_t filled = report.step * width / std::max<std::size_t>(report.last_step, 1);
    return "[" + std::string(filled, '#') + std::string(width - filled, '-') + "]";
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
    std::string line = bar(report, kBarWidth) + " " + describe(report);
    line.resize(std::min(line.size(), terminal_width() - 1));  // a wrapped line could not be overwritten
    fmt::print(stderr, "\r{}\x1b[K", line);
    std::fflush(stderr);
    bar_open_ = true;
}

void Progress::end_bar() {
    if (!std::exchange(bar_open_, false)) return;
    fmt::print(stderr, "\n");
}

}  // namespace train
