#pragma once
// Generator: control messages of any content that a receiver accepts, by seed. A visitor of the field table, so that a
// new member is tested without a line here.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/protocol/field_table.hpp"

namespace ddprun::protocol {

class Generator {
public:
    /// kAll: every member that may be absent is there, and every list has an entry.
    enum class Optional { kSome, kAll };

    explicit Generator(std::uint32_t seed, Optional optional = Optional::kSome) : random_(seed), optional_(optional) {}

    AgentMessage agent_message() { return any_of<AgentMessage>(); }
    DaemonMessage daemon_message() { return any_of<DaemonMessage>(); }

    /// One message of each type.
    template <typename Variant>
    std::vector<Variant> one_of_each() {
        std::vector<Variant> messages;
        [&]<std::size_t... indices>(std::index_sequence<indices...>) {
            (messages.push_back(message<Variant, indices>()), ...);
        }
        (std::make_index_sequence<std::variant_size_v<Variant>>());
        return messages;
    }

    template <typename T, typename Rule = DefaultRule<T>>
    void operator()(std::string_view key, T& value, const Rule& rule = default_rule<T>()) {
        fill(value, rule);
        if constexpr (std::is_same_v<T, int>) {  // of a message of another version nearly nothing is read
            if (key == "protocol" && (optional_ == Optional::kAll || number(0, 9) > 0)) value = kProtocolVersion;
        }
    }

    template <typename T, typename Rule = DefaultRule<T>>
    void optional(std::string_view key, T& value, const Rule& rule = default_rule<T>(), const T& absent = {}) {
        if (!has_optional()) return;
        do {
            (*this)(key, value, rule);
        } while (optional_ == Optional::kAll && value == absent);
    }

    template <typename T, typename Rule = DefaultRule<T>>
    void optional(std::string_view key, std::optional<T>& value, const Rule& rule = default_rule<T>()) {
        if (has_optional()) (*this)(key, value.emplace(), rule);
    }

    template <typename T, typename... More>
    void each(std::string_view, std::vector<T>& parts, std::size_t, More... more) {
        parts.resize(list_size());
        for (T& part : parts) visit_fields(part, *this, more...);
    }

    template <typename T>
    void optional_each(std::string_view key, std::vector<T>& parts, std::size_t max_items) {
        if (has_optional()) each(key, parts, max_items);
    }

    bool mark(std::string_view) { return true; }

private:
    template <typename Variant>
    Variant any_of() {
        std::vector<Variant> messages = one_of_each<Variant>();
        return std::move(messages[static_cast<std::size_t>(number(0, static_cast<std::int64_t>(messages.size()) - 1))]);
    }

    template <typename Variant, std::size_t index>
    Variant message() {
        std::variant_alternative_t<index, Variant> alternative;
        visit_fields(alternative, *this);
        return alternative;
    }

    std::int64_t number(std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
    }
    bool has_optional() { return optional_ == Optional::kAll || number(0, 1) == 1; }
    std::size_t list_size() { return static_cast<std::size_t>(number(optional_ == Optional::kAll ? 1 : 0, 4)); }

    void fill(bool& value, Flag) { value = number(0, 1) == 1; }

    /// Near either end of the range, or anywhere in it.
    template <typename T>
    void fill(T& value, Range range) {
        switch (number(0, 3)) {
            case 0: value = static_cast<T>(number(std::max(range.low, range.high - 9), range.high)); break;
            case 1: value = static_cast<T>(number(range.low, range.high)); break;
            default: value = static_cast<T>(number(range.low, std::min(range.low + 9, range.high)));
        }
    }

    void fill(std::string& value, Text) {
        static const std::vector<std::string> kPieces{
            "a", "B",    "\"", "\\",           "/", "\n", "\r",  "\t", "\x1b[31m", std::string(1, '\0'), "\x7f",
            "é", "节点", "🔥",  "\xEF\xBF\xBD", " ", "{}", "null"};
        value.clear();
        for (auto left = number(0, 12); left > 0; --left)
            value += kPieces[static_cast<std::size_t>(number(0, static_cast<std::int64_t>(kPieces.size()) - 1))];
    }

    void fill(std::vector<std::string>& values, const Texts& texts) {
        values.resize(list_size());
        for (std::string& value : values) fill(value, texts.each);
    }

    template <typename Enum>
    void fill(Enum& value, const OneOf<Enum>& one_of) {
        value = one_of.names[static_cast<std::size_t>(number(0, std::ssize(one_of.names) - 1))].first;
    }

    void fill(std::uint64_t& value, Hexadecimal) { value = random_(); }

    void fill(std::vector<RankRun>& runs, RankRuns) {
        runs.resize(list_size());
        for (RankRun& run : runs) {
            run = {static_cast<int>(number(0, 9)), static_cast<int>(number(1, 9)), static_cast<int>(number(0, 9))};
        }
    }

    template <typename T>
    void fill(T& part, Part) {
        visit_fields(part, *this);
    }

    std::mt19937_64 random_;
    Optional optional_;
};

}  // namespace ddprun::protocol
