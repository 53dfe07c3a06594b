#include "agent/output/time_stamp.hpp"

#include <fmt/format.h>

#include <cstdlib>

namespace ddprun::agent {
namespace {

constexpr std::size_t kMillisecondsAt = std::string_view("2026-03-01T12:00:03.").size();

}  // namespace

std::string_view TimeStamp::at(std::chrono::system_clock::time_point now) {
    using std::chrono::floor;
    const auto second = floor<std::chrono::seconds>(now);
    const auto milliseconds = floor<std::chrono::milliseconds>(now - second).count();
    if (const std::time_t time = std::chrono::system_clock::to_time_t(second); time != second_) format_second(time);
    fmt::format_to_n(text_.begin() + kMillisecondsAt, 3, "{:03}", milliseconds);
    return text_;
}

/// Sets text_, but for its milliseconds. This takes longer than the rest, and a second has many lines.
void TimeStamp::format_second(std::time_t second) {
    second_ = second;
    std::tm local{};
    ::localtime_r(&second, &local);
    const long minutes = local.tm_gmtoff / 60;
    text_ = fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.000{}{:02}:{:02} ", local.tm_year + 1900, local.tm_mon + 1,
                        local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec, minutes < 0 ? '-' : '+',
                        std::abs(minutes) / 60, std::abs(minutes) % 60);
}

std::string LineStamper::stamped(std::string_view bytes, std::string_view stamp) {
    std::string result;
    while (!bytes.empty()) {
        if (at_line_start_) result += stamp;
        const std::size_t end = bytes.find('\n');
        at_line_start_ = end != std::string_view::npos;
        const std::size_t size = at_line_start_ ? end + 1 : bytes.size();
        result += bytes.substr(0, size);
        bytes.remove_prefix(size);
    }
    return result;
}

}  // namespace ddprun::agent
