#include "common/text/words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <numeric>
#include <vector>

namespace ddprun {
namespace {

/// Returns the number of typing errors between two words: letters missing, added or wrong, or two neighbours swapped
/// (Damerau 1964, doi:10.1145/363958.363994; dynamic programming of Wagner & Fischer 1974, doi:10.1145/321796.321811).
std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), 0u);
    std::vector<std::size_t> last(row);
    std::vector<std::size_t> last_but_one(row);
    for (std::size_t i = 0; i < a.size(); ++i) {
        last_but_one.swap(last);
        last.swap(row);
        row[0] = i + 1;
        for (std::size_t j = 0; j < b.size(); ++j) {
            row[j + 1] = std::min({last[j] + (a[i] == b[j] ? 0 : 1), row[j] + 1, last[j + 1] + 1});
            if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j])
                row[j + 1] = std::min(row[j + 1], last_but_one[j - 1] + 1);
        }
    }
    return row.back();
}

/// Returns 0 for an abbreviation, as torchrun accepts them, else the edit distance.
std::size_t distance(std::string_view typed, std::string_view known) {
    return known.starts_with(typed) ? 0 : edit_distance(typed, known);
}

}  // namespace

std::string lower_case(std::string text) {
    std::ranges::transform(text, text.begin(),
                           [](char c) { return 'A' <= c && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    return text;
}

bool continues_name(std::string_view text, std::size_t at) {
    return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '_');
}

std::string sentence(std::string_view text) { return fmt::format("{}{}", text, ends_sentence(text) ? "" : "."); }

std::string name_node(std::string_view name) {
    const bool begins_with_it = lower_case(std::string(name.substr(0, 4))) == "node";
    return fmt::format("{}{}", begins_with_it ? "" : "node ", name);
}

std::string did_you_mean(std::string_view typed, std::span<const std::string_view> known,
                         std::optional<std::size_t> max_edits) {
    if (typed.empty() || known.empty()) return {};
    const std::string_view best =
        *std::ranges::min_element(known, {}, [&](std::string_view word) { return distance(typed, word); });
    const std::size_t limit = max_edits.value_or(std::max<std::size_t>(2, typed.size() / 3));
    return distance(typed, best) <= limit ? fmt::format(" Did you mean {}?", best) : "";
}

std::string did_you_mean(std::string_view typed, const std::vector<std::string>& known,
                         std::optional<std::size_t> max_edits) {
    return did_you_mean(typed, std::vector<std::string_view>(known.begin(), known.end()), max_edits);
}

}  // namespace ddprun
