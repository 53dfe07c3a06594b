#include "worker_lib/src/group/split_names.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace ddp::detail {

std::string to_text(const SplitRequest& request) {
    return fmt::format("{} {} {:d} {}", request.color, request.key, request.on_host, request.name);
}

SplitRequest parse_request(const std::string& text) {
    const auto first = text.find(' ');
    const auto second = text.find(' ', first + 1);
    const auto third = text.find(' ', second + 1);
    return {std::stoi(text.substr(0, first)), std::stoi(text.substr(first + 1, second)), text.substr(third + 1),
            text.substr(second + 1, third - second - 1) == "1"};
}

std::string name_of_part(std::string_view parent, std::uint64_t split, const SplitRequest& own,
                         const std::vector<SplitRequest>& all) {
    const bool several = std::ranges::any_of(all, [&](const SplitRequest& other) {
        return other.color >= 0 && other.color != own.color && other.name == own.name;
    });
    // A name from the program that looks like the generated ones could make two groups have the same name.
    const bool odd = own.name.empty() || own.name.find_first_of("()'") != std::string::npos ||
                     own.name.find(" of ") != std::string::npos;
    std::string which;
    if (odd || split > 1) which = fmt::format("split {}", split);
    if (several) which += fmt::format("{}color {}", which.empty() ? "" : ", ", own.color);
    if (which.empty()) return fmt::format("{} of {}", own.name, parent);
    return fmt::format("{}{}({}) of {}", own.name, own.name.empty() ? "" : " ", which, parent);
}

}  // namespace ddp::detail
