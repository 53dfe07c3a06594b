#include "worker_lib/src/native/collectives/all_reduce_rules.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "common/text/number.hpp"
#include "ddp/error.hpp"

namespace ddp::detail {

namespace {

constexpr const char* kVariable = "DDPRUN_ALLREDUCE";
constexpr std::array kAlgorithms{NetworkAlgorithm::kDirect, NetworkAlgorithm::kDoubling, NetworkAlgorithm::kScatter};

[[noreturn]] void refuse_rules(const std::string& text, const std::string& why) {
    throw Error(ErrorCode::Environment,
                fmt::format("{} is '{}': {}. Expected for example rd:0-32768;scatter:32769-max", kVariable, text, why));
}

NetworkAlgorithm algorithm_of(const std::string& text, std::string_view name) {
    for (const NetworkAlgorithm algorithm : kAlgorithms) {
        if (name == to_string(algorithm)) return algorithm;
    }
    refuse_rules(text, fmt::format("there is no algorithm '{}'; there are direct, rd and scatter", name));
}

std::size_t size_of(const std::string& text, std::string_view word) {
    if (word == "max") return AllReduceRule::kAny;
    const auto bytes = ddprun::parse_number<std::size_t>(word);
    if (!bytes) refuse_rules(text, fmt::format("'{}' is not a number of bytes", word));
    return *bytes;
}

/// Removes the text before `mark`, and the mark, from `rest`, and returns that text; all of it without a mark.
std::string_view cut(std::string_view& rest, char mark) {
    const auto at = rest.find(mark);
    const std::string_view word = rest.substr(0, at);
    rest.remove_prefix(at == std::string_view::npos ? rest.size() : at + 1);
    return word;
}

}  // namespace

std::string_view to_string(NetworkAlgorithm algorithm) {
    switch (algorithm) {
        case NetworkAlgorithm::kDirect: return "direct";
        case NetworkAlgorithm::kDoubling: return "rd";
        case NetworkAlgorithm::kScatter: return "scatter";
    }
    return "?";
}

AllReduceRules AllReduceRules::parse(const std::optional<std::string>& text) {
    AllReduceRules result;
    if (!text || text->empty()) return result;
    result.rules_.clear();
    result.text_.clear();
    std::size_t next = 0;  // the first size that has no rule yet
    bool complete = false;
    for (std::string_view rest = *text; !rest.empty();) {
        std::string_view range = cut(rest, ';');
        const std::string_view whole = range;
        const NetworkAlgorithm algorithm = algorithm_of(*text, cut(range, ':'));
        const std::size_t least = size_of(*text, cut(range, '-'));
        const std::size_t max = size_of(*text, range);
        if (complete) refuse_rules(*text, fmt::format("'{}' comes after max", whole));
        if (least != next) refuse_rules(*text, fmt::format("'{}' should begin at {}", whole, next));
        if (max < least) refuse_rules(*text, fmt::format("'{}' ends before it begins", whole));
        result.rules_.push_back({AllReduceRule::kAny, max, algorithm});
        result.text_ += fmt::format("{}{}:{}-{}", result.text_.empty() ? "" : ";", to_string(algorithm), least,
                                    max == AllReduceRule::kAny ? "max" : std::to_string(max));
        complete = max == AllReduceRule::kAny;
        next = max + 1;
    }
    if (!complete)
        refuse_rules(*text, fmt::format("sizes from {} on have no algorithm; the last range ends with max", next));
    return result;
}

NetworkAlgorithm AllReduceRules::choose(std::size_t bytes, std::size_t nodes) const {
    const auto fits = [&](const AllReduceRule& rule) { return nodes <= rule.max_nodes && bytes <= rule.max_bytes; };
    const auto found = std::ranges::find_if(rules_, fits);
    return found == rules_.end() ? NetworkAlgorithm::kScatter : found->algorithm;
}

}  // namespace ddp::detail
