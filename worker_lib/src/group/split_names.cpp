#include "worker_lib/src/split_names.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace ddp::detail {

std::string to_text(const SplitWish& wish) { return fmt::format("{} {} {}", wish.color, wish.key, wish.name); }

SplitWish parse_wish(const std::string& text) {
    const auto first = text.find(' ');
    const auto second = text.find(' ', first + 1);
    return {std::stoi(text.substr(0, first)), std::stoi(text.substr(first + 1, second)), text.substr(second + 1)};
}

std::string name_of_part(std::string_view parent, std::uint64_t split, const SplitWish& own,
                         const std::vector<SplitWish>& all) {
    const bool several = std::ranges::any_of(all, [&](const SplitWish& other) {
        return other.color >= 0 && other.color != own.color && other.name == own.name;
    });
    // Words that stand for something here must not come from the program: two groups would have one name.
    const bool odd = own.name.empty() || own.name.find_first_of("()'") != std::string::npos ||
                     own.name.find(" of ") != std::string::npos;
    std::string which;
    if (odd || split > 1) which = fmt::format("split {}", split);
    if (several) which += fmt::format("{}color {}", which.empty() ? "" : ", ", own.color);
    if (which.empty()) return fmt::format("{} of {}", own.name, parent);
    return fmt::format("{}{}({}) of {}", own.name, own.name.empty() ? "" : " ", which, parent);
}

}  // namespace ddp::detail
