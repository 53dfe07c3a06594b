#include "launcher/scheduler/host_list.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <optional>
#include <utility>

#include "common/job_limits.hpp"
#include "common/text/number.hpp"

namespace ddprun::launcher {
namespace {

using Names = std::vector<std::string>;

constexpr std::size_t kMaxDigits = 10;  // of a number, zeros before it included: each host repeats them

Error malformed(std::string_view part) { return {Errc::kMalformed, fmt::format("'{}' is not a list of hosts", part)}; }

Error too_many() { return {Errc::kLimit, fmt::format("the list has more than {} hosts", kMaxNodes)}; }

bool has_room(std::size_t count) { return count <= static_cast<std::size_t>(kMaxNodes); }

/// Splits at the commas outside brackets.
std::vector<std::string_view> split_list(std::string_view list) {
    std::vector<std::string_view> parts;
    int depth = 0;
    std::size_t begin = 0;
    for (std::size_t i = 0; i < list.size(); ++i) {
        if (list[i] == '[') ++depth;
        if (list[i] == ']') --depth;
        if (list[i] != ',' || depth > 0) continue;
        parts.push_back(list.substr(begin, i - begin));
        begin = i + 1;
    }
    parts.push_back(list.substr(begin));
    return parts;
}

/// Returns the numbers of "07-09" or "12" as text.
Result<Names> expand_range(std::string_view range) {
    const std::size_t dash = range.find('-');
    const std::string_view first_text = range.substr(0, dash);
    const auto first = parse_number<int>(first_text);
    const auto last = dash == std::string_view::npos ? first : parse_number<int>(range.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || first_text.size() > kMaxDigits) return malformed(range);
    if (!has_room(static_cast<std::size_t>(*last - *first) + 1)) return too_many();
    Names numbers;
    for (int number = *first; number <= *last; ++number)
        numbers.push_back(fmt::format("{:0{}}", number, first_text.size()));
    return numbers;
}

/// Returns the numbers of "1-3,07-09", the text between brackets.
Result<Names> expand_ranges(std::string_view ranges) {
    Names numbers;
    for (const std::string_view range : split_list(ranges)) {
        auto expanded = expand_range(range);
        if (!expanded) return expanded.error();
        numbers.insert(numbers.end(), expanded->begin(), expanded->end());
        if (!has_room(numbers.size())) return too_many();
    }
    return numbers;
}

/// Appends to each of `names` each of `endings`.
Names join_all(const Names& names, const Names& endings) {
    Names joined;
    joined.reserve(names.size() * endings.size());
    for (const std::string& name : names)
        for (const std::string& ending : endings) joined.push_back(name + ending);
    return joined;
}

/// Returns the hosts of one part, such as "rack[0-1]n[00-15]-ib".
Result<Names> expand_part(std::string_view part) {
    Names names{""};
    for (std::string_view rest = part; !rest.empty();) {
        const std::size_t open = rest.find('[');
        const std::string text(rest.substr(0, open));
        if (text.find(']') != std::string::npos) return malformed(part);
        for (std::string& name : names) name += text;
        if (open == std::string_view::npos) break;
        const std::size_t close = rest.find(']', open);
        if (close == std::string_view::npos) return malformed(part);
        auto numbers = expand_ranges(rest.substr(open + 1, close - open - 1));
        if (!numbers) return numbers.error().code == Errc::kLimit ? numbers.error() : malformed(part);
        if (!has_room(names.size() * numbers->size())) return too_many();
        names = join_all(names, *numbers);
        rest.remove_prefix(close + 1);
    }
    return names.front().empty() ? Result<Names>(malformed(part)) : names;
}

}  // namespace

Result<std::vector<std::string>> expand_host_list(std::string_view list) {
    Names hosts;
    for (const std::string_view part : split_list(list)) {
        auto names = expand_part(part);
        if (!names) return names.error();
        hosts.insert(hosts.end(), std::make_move_iterator(names->begin()), std::make_move_iterator(names->end()));
        if (!has_room(hosts.size())) return too_many();
    }
    return hosts;
}

}  // namespace ddprun::launcher
