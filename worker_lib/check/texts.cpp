#include "worker_lib/check/texts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>

#include "common/text/cut.hpp"

namespace ddp::check {
namespace {

constexpr std::size_t kMaxDigits = 9;  // of a number that fits into an int

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// A name around its last number; one without a number is all `before`.
struct SplitName {
    std::string before;
    std::string after;
    std::size_t width = 0;  ///< of the number, if names have leading zeros, else 0
    int number = -1;

    [[nodiscard]] bool shares_range_with(const SplitName& other) const {
        return number >= 0 && other.number >= 0 && before == other.before && after == other.after &&
               width == other.width;
    }
};

/// Returns where the last number of the name is: its begin and its end, which are equal if there is none.
std::pair<std::size_t, std::size_t> last_number(const std::string& name) {
    auto end = name.size();
    while (end > 0 && !is_digit(name[end - 1])) --end;
    auto begin = end;
    while (begin > 0 && is_digit(name[begin - 1])) --begin;
    return {begin, end};
}

bool has_leading_zero(const std::string& name) {
    const auto [begin, end] = last_number(name);
    return end - begin > 1 && name[begin] == '0';
}

SplitName split(const std::string& name, bool zeros) {
    const auto [begin, end] = last_number(name);
    if (begin == end || end - begin > kMaxDigits) return {.before = name, .after = {}};
    return {.before = name.substr(0, begin),
            .after = name.substr(end),
            .width = zeros ? end - begin : 0,
            .number = std::stoi(name.substr(begin, end - begin))};
}

std::string ranges(std::vector<int> numbers, std::size_t width) {
    std::ranges::sort(numbers);
    std::string text;
    for (std::size_t i = 0; i < numbers.size();) {
        std::size_t last = i;
        while (last + 1 < numbers.size() && numbers[last + 1] - numbers[last] <= 1) ++last;
        text += fmt::format("{}{:0{}}", text.empty() ? "" : ",", numbers[i], width);
        if (numbers[last] != numbers[i]) text += fmt::format("-{:0{}}", numbers[last], width);
        i = last + 1;
    }
    return text;
}

}  // namespace

std::string node_ranges(const std::vector<std::string>& names) {
    std::vector<std::pair<SplitName, std::vector<int>>> groups;
    const bool zeros = std::ranges::any_of(names, has_leading_zero);
    for (const std::string& name : names) {
        SplitName parts = split(name, zeros);
        const auto same =
            std::ranges::find_if(groups, [&](const auto& group) { return group.first.shares_range_with(parts); });
        if (same == groups.end())
            groups.push_back({parts, {parts.number}});
        else
            same->second.push_back(parts.number);
    }
    std::string text;
    for (const auto& [parts, numbers] : groups) {
        if (!text.empty()) text += ",";
        std::string list = parts.number < 0 ? "" : ranges(numbers, parts.width);
        if (numbers.size() > 1) list = fmt::format("[{}]", list);
        text += parts.before + list + parts.after;
    }
    return text;
}

std::string short_node_ranges(const std::vector<std::string>& names, std::size_t max_bytes) {
    std::string text = node_ranges(names);
    if (text.size() <= max_bytes) return text;
    const std::string count = fmt::format(" ({} nodes)", names.size());
    return ddprun::cut(text, std::max(max_bytes, count.size() + 8) - count.size()) + count;
}

std::string bytes_text(std::int64_t bytes) {
    constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    for (; value >= 1000 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
    return fmt::format("{:.{}f} {}", value, unit == 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2, kUnits[unit]);
}

std::string gpus_text(const std::vector<Gpu>& gpus) {
    std::map<std::string, int> models;
    for (const Gpu& gpu : gpus) ++models[fmt::format("{} {}", gpu.name, bytes_text(gpu.memory_bytes))];
    std::string text;
    for (const auto& [model, count] : models) text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", count, model);
    return text.empty() ? "none" : text;
}

std::string driver_text(const Node& node) {
    if (!node.driver) return "none";
    return *node.driver + (node.cuda ? fmt::format(" (CUDA {})", *node.cuda) : "");
}

std::string rdma_text(const std::vector<RdmaPort>& ports) {
    std::map<std::string, int> kinds;
    for (const RdmaPort& port : ports) ++kinds[port.state == "ACTIVE" ? port.rate : port.state];
    std::string text;
    for (const auto& [kind, count] : kinds) text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", count, kind);
    return text.empty() ? "none" : text;
}

std::string speed_text(int mbit) {
    return mbit < 1000 ? fmt::format("{} Mbit/s", mbit) : fmt::format("{:g} Gbit/s", mbit / 1000.0);
}

std::string limit_text(const std::optional<std::int64_t>& limit) {
    return limit ? std::to_string(*limit) : "unlimited";
}

}  // namespace ddp::check
