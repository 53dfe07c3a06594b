#include "launcher/scheduler/variables.hpp"

#include <fmt/format.h>

#include "common/text/number.hpp"

namespace ddprun::launcher {

std::optional<std::string_view> Variables::text(std::string_view name) const {
    const auto it = environment_.find(name);
    return it == environment_.end() || it->second.empty() ? std::nullopt : std::optional<std::string_view>(it->second);
}

Result<std::string_view> Variables::required(std::string_view name) const {
    if (const auto value = text(name)) return *value;
    return start_error(
        fmt::format("{} is set, but {} is not, so the nodes of the job are unknown. {}", sign_, name, kNameTheNodes));
}

Result<int> Variables::number(std::string_view name, int min, int max, std::optional<int> missing) const {
    if (missing && !text(name)) return *missing;
    const auto value = required(name);
    if (!value) return value.error();
    const auto number = parse_number<int>(*value);
    if (number && *number >= min && *number <= max) return *number;
    return start_error(
        fmt::format("{}={}: not a whole number from {} to {}. {}", name, *value, min, max, kNameTheNodes));
}

}  // namespace ddprun::launcher
