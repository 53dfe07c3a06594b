#include "worker_lib/src/util/text.hpp"

#include <fmt/format.h>

namespace ddp::detail {

std::string name_ranks(const std::vector<int>& ranks) {
    std::vector<std::string> numbers;
    for (const int rank : ranks) numbers.push_back(std::to_string(rank));
    return (ranks.size() == 1 ? "rank " : "ranks ") + list_of(std::move(numbers), ranks.size());
}

std::string sentence(std::string_view text) {
    const bool ended = text.ends_with('.') || text.ends_with('?') || text.ends_with('!');
    return fmt::format("{}{}", text, ended ? "" : ".");
}

std::string list_of(std::vector<std::string> names, std::size_t max) {
    if (names.size() > max + 1) {  // "and 1 more" is no shorter than its name
        const std::size_t left = names.size() - max;
        names.resize(max);
        names.push_back(fmt::format("{} more", left));
    }
    std::string text;
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
        text += names[i];
    }
    return text;
}

}  // namespace ddp::detail
