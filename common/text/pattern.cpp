#include "common/text/pattern.hpp"

#include <fmt/format.h>
#include <re2/re2.h>

#include <string>
#include <utility>

namespace ddprun {
namespace {

/// The steps of one match are at most the bytes of the text times this, because the agent must send its heartbeats.
constexpr int kMaxInstructions = 1000;

}  // namespace

Result<Pattern> Pattern::parse(std::string_view text) {
    RE2::Options options;
    options.set_log_errors(false);
    auto compiled = std::make_shared<const RE2>(re2::StringPiece(text.data(), text.size()), options);
    if (compiled->ok() && compiled->ProgramSize() <= kMaxInstructions) return Pattern(std::move(compiled));
    if (compiled->ok())
        return Error{Errc::kUsage,
                     "takes too many steps to match. Write smaller numbers in {}, or name fewer alternatives."};
    return Error{Errc::kUsage,
                 fmt::format("not a regular expression: {}. A backslash before one of .[]{{}}()*+?|^$\\ stands for the "
                             "character itself.",
                             compiled->error())};
}

bool Pattern::matches(std::string_view text) const {
    return RE2::PartialMatch(re2::StringPiece(text.data(), text.size()), *compiled_);
}

}  // namespace ddprun
