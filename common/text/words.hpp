#pragma once
// Words and sentences for messages. Pure.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

/// Returns `text` with A to Z as a to z; other bytes stay, whatever the locale.
[[nodiscard]] std::string lower_case(std::string text);

/// Returns whether text[at] exists and may be part of the name of a variable: a letter, a digit or '_'.
[[nodiscard]] bool continues_name(std::string_view text, std::size_t at);

/// Returns whether `text` ends with a full stop, a question mark or an exclamation mark.
[[nodiscard]] inline bool ends_sentence(std::string_view text) {
    return text.ends_with('.') || text.ends_with('?') || text.ends_with('!');
}
/// Returns `text` with a full stop, unless it ends a sentence already, so that another one can follow.
[[nodiscard]] std::string sentence(std::string_view text);

/// Returns "node n2", and of a node whose name begins with that word the name alone.
[[nodiscard]] std::string name_node(std::string_view name);

/// Returns " Did you mean X?" for the known word that begins with `typed` or is few edits away; empty: there is none.
/// `max_edits`: by default two, or a third of the length of `typed`.
[[nodiscard]] std::string did_you_mean(std::string_view typed, std::span<const std::string_view> known,
                                       std::optional<std::size_t> max_edits = {});
[[nodiscard]] std::string did_you_mean(std::string_view typed, const std::vector<std::string>& known,
                                       std::optional<std::size_t> max_edits = {});

}  // namespace ddprun
