#include "agent/output/label.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>

#include "common/text/list.hpp"
#include "common/text/number.hpp"
#include "common/text/words.hpp"

namespace ddprun::agent {

namespace {

/// Returns "0-2,5" for the ranks 0, 1, 2 and 5.
std::string ranks_text(const std::vector<int>& local_ranks, int rank_base) {
    return join_ranges(ranges_in(local_ranks), ",", rank_base);
}

struct Variable {
    std::string_view name;
    std::string (*value)(const LineSource& source);
};

constexpr std::array kVariables{
    Variable{"role_name", [](const LineSource& source) { return source.role; }},
    Variable{"local_rank", [](const LineSource& source) { return ranks_text(source.local_ranks, 0); }},
    Variable{"rank", [](const LineSource& source) { return ranks_text(source.local_ranks, number(source.rank_base)); }},
    Variable{"hostname", [](const LineSource& source) { return source.host.substr(0, source.host.find('.')); }},
};

/// Returns the variable of that name; null: there is none.
const Variable* find_variable(std::string_view name) {
    const auto* const found = std::ranges::find(kVariables, name, &Variable::name);
    return found == kVariables.end() ? nullptr : found;
}

/// Returns `text` with $name and ${name} replaced by value_of(name, "${name}"), unless that is nullopt, and "$$" by
/// "$".
template <typename ValueOf>
std::string replace_variables(std::string_view text, ValueOf value_of) {
    std::string label;
    for (auto at = text.find('$'); at != std::string_view::npos; at = text.find('$')) {
        label += text.substr(0, at);
        text.remove_prefix(at + 1);
        const bool braces = text.starts_with('{');
        const auto word = text.substr(braces ? 1 : 0);
        std::size_t length = 0;
        while (continues_name(word, length)) ++length;
        const auto name = word.substr(0, length);
        const bool complete = !braces || word.substr(length).starts_with('}');
        const std::size_t written = length + (braces ? 2 : 0);
        const auto value = complete ? value_of(name, fmt::format("${}", text.substr(0, written))) : std::nullopt;
        if (value) {
            label += *value;
            text.remove_prefix(written);
        } else {
            label += '$';
            if (text.starts_with('$')) text.remove_prefix(1);
        }
    }
    return label.append(text);
}

}  // namespace

std::string fold_label(const LineSource& source) {
    return fmt::format("[{} {}] ", inflect(source.local_ranks.size(), "rank", "ranks"),
                       ranks_text(source.local_ranks, number(source.rank_base)));
}

std::string worker_label(std::string_view text, const LineSource& source) {
    if (text.empty())
        return fmt::format("[{}:{}] ", source.host, ranks_text(source.local_ranks, number(source.rank_base)));
    return replace_variables(text, [&](std::string_view name, const std::string&) -> std::optional<std::string> {
        const Variable* const variable = find_variable(name);
        return variable == nullptr ? std::nullopt : std::optional(variable->value(source));
    });
}

std::vector<std::string> label_variables() {
    std::vector<std::string> names;
    for (const Variable& variable : kVariables) names.emplace_back(variable.name);
    return names;
}

std::vector<std::string> unknown_label_variables(std::string_view text) {
    std::vector<std::string> unknown;
    replace_variables(text, [&](std::string_view name, const std::string& written) -> std::optional<std::string> {
        const bool is_name = !name.empty() && (name[0] < '0' || name[0] > '9');
        if (is_name && find_variable(name) == nullptr && std::ranges::count(unknown, written) == 0)
            unknown.push_back(written);
        return std::nullopt;
    });
    return unknown;
}

}  // namespace ddprun::agent
