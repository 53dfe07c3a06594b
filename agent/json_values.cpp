#include "agent/json_values.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cmath>

#include "common/text/utf8.hpp"

namespace ddprun::agent {

namespace json = boost::json;

json::string text_json(std::string_view text) {
    const std::string clean = clean_text(text, std::string_view::npos);
    return json::string(clean.data(), clean.size());
}

std::string utc_text(std::chrono::system_clock::time_point time) {
    const auto since = std::chrono::floor<std::chrono::milliseconds>(time.time_since_epoch());
    const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
    return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(static_cast<std::time_t>(seconds.count())),
                       (since - seconds).count());
}

json::value milliseconds_json(std::optional<Duration> duration) {
    if (!duration) return nullptr;
    return std::round(std::chrono::duration<double, std::micro>(*duration).count()) / 1000;
}

std::optional<Duration> between(std::optional<TimePoint> from, std::optional<TimePoint> to) {
    if (!from || !to) return std::nullopt;
    return *to - *from;
}

std::string json_text(const json::value& value) {
    if (value.is_double() && !std::isfinite(value.get_double())) return "null";  // a worker may have written 1e999
    if (value.is_double()) return fmt::format("{}", value.get_double());
    std::string text;
    if (const json::array* const array = value.if_array()) {
        for (const json::value& item : *array) text += (text.empty() ? "" : ",") + json_text(item);
        return "[" + text + "]";
    }
    if (const json::object* const object = value.if_object()) {
        for (const auto& [key, member] : *object)
            text += fmt::format("{}{}:{}", text.empty() ? "" : ",", json::serialize(key), json_text(member));
        return "{" + text + "}";
    }
    return json::serialize(value);
}

boost::json::value restart_role_json(const protocol::Assignment& assignment) {
    if (!assignment.restart || assignment.restart->role.empty()) return nullptr;
    return text_json(assignment.restart->role);
}

void add_end(json::object& object, const ExitStatus& status) {
    object["exit_code"] = status.exit_code();
    if (status.kind != ExitStatus::Kind::kSignaled) return;
    object["signal"] = status.number;
    object["signal_name"] = signal_name(status.number);
    object["core_dumped"] = status.core_dumped;
}

json::object phases_json(const TimeAccount& account) {
    json::object phases;
    for (const TimePart& part : kTimeParts)
        phases[fmt::format("{}_ms", part.name)] = milliseconds_json(account.*part.part);
    return phases;
}

void add_account(json::object& object, const std::optional<TimeAccount>& account, bool names_steps) {
    object["phases"] = account ? json::value(phases_json(*account)) : nullptr;
    object["wall_ms"] = account ? milliseconds_json(wall_time(*account)) : nullptr;
    object["goodput"] =
        account && names_steps ? json::value(std::round(goodput(*account) * 1e4) / 1e4) : json::value(nullptr);
}

}  // namespace ddprun::agent
