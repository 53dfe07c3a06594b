#include "agent/output/label.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <map>

#include "common/text/words.hpp"

namespace ddprun::agent {

std::string worker_label(std::string_view text, const LineSource& source) {
    if (text.empty()) return fmt::format("[{}:{}] ", source.host, number(source.rank));
    const std::map<std::string_view, std::string> values{{"role_name", source.role},
                                                         {"local_rank", std::to_string(number(source.local_rank))},
                                                         {"rank", std::to_string(number(source.rank))},
                                                         {"hostname", source.host.substr(0, source.host.find('.'))}};
    std::string label;
    for (auto at = text.find('$'); at != std::string_view::npos; at = text.find('$')) {
        label += text.substr(0, at);
        text.remove_prefix(at + 1);
        const bool braces = text.starts_with('{');
        const auto word = text.substr(braces ? 1 : 0);
        std::size_t length = 0;
        while (continues_name(word, length)) ++length;
        const auto name = word.substr(0, length);
        const auto known = values.find(name);
        if (known != values.end() && (!braces || word.substr(name.size()).starts_with('}'))) {
            label += known->second;
            text.remove_prefix(name.size() + (braces ? 2 : 0));
        } else {
            label += '$';
            if (text.starts_with('$')) text.remove_prefix(1);
        }
    }
    return label.append(text);
}

}  // namespace ddprun::agent
