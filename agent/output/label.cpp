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

/// Returns `text` with $name and ${name} replaced by value_of(name), unless that is nullopt, and "$$" by "$".
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
        if (const std::optional<std::string> value = complete ? value_of(name) : std::nullopt) {
            label += *value;
            text.remove_prefix(length + (braces ? 2 : 0));
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
    const std::string ranks = ranks_text(source.local_ranks, number(source.rank_base));
    if (text.empty()) return fmt::format("[{}:{}] ", source.host, ranks);
    const std::array<std::string, kLabelVariables.size()> values{source.role, ranks_text(source.local_ranks, 0), ranks,
                                                                 source.host.substr(0, source.host.find('.'))};
    return replace_variables(text, [&](std::string_view name) -> std::optional<std::string> {
        const auto* const known = std::ranges::find(kLabelVariables, name);
        if (known == kLabelVariables.end()) return std::nullopt;
        return values.at(static_cast<std::size_t>(known - kLabelVariables.begin()));
    });
}

std::vector<std::string> unknown_label_variables(std::string_view text) {
    std::vector<std::string> unknown;
    replace_variables(text, [&](std::string_view name) -> std::optional<std::string> {
        const bool is_name = !name.empty() && (name[0] < '0' || name[0] > '9');
        if (is_name && std::ranges::count(kLabelVariables, name) == 0 && std::ranges::count(unknown, name) == 0)
            unknown.emplace_back(name);
        return std::nullopt;
    });
    return unknown;
}

}  // namespace ddprun::agent
