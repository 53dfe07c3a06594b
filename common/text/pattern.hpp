#pragma once
// Pattern: a regular expression in Perl's syntax that looks for a match in a text. Pure value, cheap to copy.

#include <memory>
#include <optional>
#include <string_view>

#include "common/error.hpp"

namespace ddprun {

class Pattern {
public:
    /// Errors: Errc::kUsage, with the position, if `text` is not a regular expression.
    [[nodiscard]] static Result<Pattern> parse(std::string_view text);

    /// Returns whether a part of `text` matches; nullopt if that takes too many steps, as of (a+)+$ in a long text.
    [[nodiscard]] std::optional<bool> matches(std::string_view text) const;

private:
    struct Compiled;
    explicit Pattern(std::shared_ptr<const Compiled> compiled) : compiled_(std::move(compiled)) {}

    std::shared_ptr<const Compiled> compiled_;
};

}  // namespace ddprun
