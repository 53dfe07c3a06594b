#include "common/text/words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>
#include <vector>

namespace ddprun {
namespace {

/// Returns the Levenshtein distance of two words (dynamic programming of Wagner & Fischer 1974,
/// doi:10.1145/321796.321811).
std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), 0u);
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::size_t diagonal = std::exchange(row[0], i + 1);
        for (std::size_t j = 0; j < b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
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
