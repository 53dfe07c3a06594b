#include "common/text/number.hpp"

namespace ddprun {

std::string seconds_number(std::chrono::nanoseconds duration) {
    return fmt::format("{:.12g}", std::chrono::duration<double>(duration).count());
}

std::string seconds_text(std::chrono::nanoseconds duration) { return seconds_number(duration) + " s"; }

std::string rounded_seconds_text(std::chrono::nanoseconds duration) {
    return fmt::format("{:.1f} s", std::chrono::duration<double>(duration).count());
}

std::string duration_text(std::chrono::nanoseconds duration) {
    const double seconds = std::chrono::duration<double>(duration).count();
    if (seconds < 0.1) return fmt::format("{:.0f} ms", seconds * 1000);
    if (seconds < 600) return rounded_seconds_text(duration);
    if (seconds >= 36'000) return fmt::format("{:.0f} h", seconds / 3600);
    return fmt::format("{:.0f} min", seconds / 60);
}

}  // namespace ddprun
