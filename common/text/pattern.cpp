#include "common/text/pattern.hpp"

// The bound on the steps of one match: some 10 ms, because the agent must send its heartbeats meanwhile.
#define BOOST_REGEX_MAX_STATE_COUNT 1'000'000

#include <fmt/format.h>

#include <boost/regex.hpp>
#include <stdexcept>
#include <utility>

namespace ddprun {

struct Pattern::Compiled {
    boost::regex expression;
};

Result<Pattern> Pattern::parse(std::string_view text) {
    try {
        return Pattern(std::make_shared<const Compiled>(
            Compiled{boost::regex(text.begin(), text.end(), boost::regex::perl | boost::regex::optimize)}));
    } catch (const boost::regex_error& error) {
        std::string why = error.what();
        why.resize(std::min(why.find_first_of(".:"), why.size()));  // what follows repeats the text
        return Error{Errc::kUsage,
                     fmt::format("not a regular expression: {} at character {}. A backslash before one of "
                                 ".[]{{}}()*+?|^$\\ stands for the character itself.",
                                 why, error.position() + 1)};
    }
}

std::optional<bool> Pattern::matches(std::string_view text) const {
    try {
        return boost::regex_search(text.begin(), text.end(), compiled_->expression);
    } catch (const std::runtime_error&) {
        return std::nullopt;
    }
}

}  // namespace ddprun
