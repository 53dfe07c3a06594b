#pragma once
// Pattern: a regular expression in RE2's syntax that looks for a match in a text, in a time that grows linearly with
// the text whatever the expression is. Pure value, cheap to copy.

#include <memory>
#include <string_view>
#include <utility>

#include "common/error.hpp"

namespace re2 {
class RE2;
}

namespace ddprun {

class Pattern {
public:
    /// Errors: Errc::kUsage, with the part that is wrong, if `text` is not a regular expression.
    [[nodiscard]] static Result<Pattern> parse(std::string_view text);

    /// Returns whether a part of `text` matches.
    [[nodiscard]] bool matches(std::string_view text) const;

private:
    explicit Pattern(std::shared_ptr<const re2::RE2> compiled) : compiled_(std::move(compiled)) {}

    std::shared_ptr<const re2::RE2> compiled_;
};

}  // namespace ddprun
