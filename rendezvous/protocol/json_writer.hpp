#pragma once
// JsonWriter: writes the members of one message or part into a JSON object. A visitor of field_table.hpp; private to
// json.cpp.

#include <boost/json.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/text/utf8.hpp"
#include "rendezvous/protocol/field_table.hpp"

namespace ddprun::protocol {

class JsonWriter {
public:
    explicit JsonWriter(boost::json::object& object) : object_(object) {}

    template <typename T, typename Rule = DefaultRule<T>>
    void operator()(std::string_view key, const T& value, const Rule& rule = default_rule<T>()) {
        object_.emplace(key, json(value, rule));
    }

    template <typename T, typename Rule = DefaultRule<T>>
    void optional(std::string_view key, const T& value, const Rule& rule = default_rule<T>(), const T& absent = {}) {
        if (value != absent) object_.emplace(key, json(value, rule));
    }

    template <typename T, typename Rule = DefaultRule<T>>
    void optional(std::string_view key, const std::optional<T>& value, const Rule& rule = default_rule<T>()) {
        if (value) object_.emplace(key, json(*value, rule));
    }

    template <typename T, typename... More>
    void each(std::string_view key, const std::vector<T>& parts, std::size_t, More... more) {
        boost::json::array array;
        for (const T& part : parts) {
            JsonWriter writer(array.emplace_back(boost::json::object()).get_object());
            visit_fields(part, writer, more...);
        }
        object_.emplace(key, std::move(array));
    }

    template <typename T>
    void optional_each(std::string_view key, const std::vector<T>& parts, std::size_t max_items) {
        if (!parts.empty()) each(key, parts, max_items);
    }

    bool mark(std::string_view key) {
        object_.emplace(key, true);
        return true;
    }

private:
    using Value = boost::json::value;

    static Value json(bool value, Flag) { return value; }
    static Value json(std::uint64_t value, Hexadecimal) { return Value(fmt::format("{:016x}", value)); }
    static Value json(std::string_view value, Text text) { return Value(clean_text(value, text.max_bytes)); }

    template <typename T>
    static Value json(const T& value, Range range) {
        if constexpr (kIsDuration<T>) {
            return std::min(value.count(), range.high);
        } else if constexpr (std::is_unsigned_v<T>) {
            return static_cast<std::int64_t>(std::min(value, static_cast<T>(range.high)));
        } else {
            return static_cast<std::int64_t>(value);
        }
    }

    template <typename Enum>
    static Value json(Enum value, const OneOf<Enum>& one_of) {
        const auto found = std::ranges::find(one_of.names, value, &std::pair<Enum, std::string_view>::first);
        return Value(found == one_of.names.end() ? "unknown" : found->second);
    }

    /// Returns as many texts as kMaxListBytes holds, counted from the end that is kept.
    static Value json(const std::vector<std::string>& values, const Texts& texts) {
        std::vector<std::string> kept;
        std::size_t bytes = 0;
        for (std::size_t i = 0; i < std::min(values.size(), texts.max_count); ++i) {
            const std::size_t at = texts.keep == Texts::Keep::kFirst ? i : values.size() - 1 - i;
            std::string text = clean_text(values[at], texts.each.max_bytes);
            bytes += text.size() + 1;  // an empty text counts too: this bounds their number
            if (bytes > kMaxListBytes) break;
            kept.push_back(std::move(text));
        }
        if (texts.keep == Texts::Keep::kLast) std::ranges::reverse(kept);
        return boost::json::array(kept.begin(), kept.end());
    }

    static Value json(const std::vector<RankRun>& runs, RankRuns) {
        boost::json::array array;
        for (const RankRun& run : runs) array.push_back(boost::json::array{run.first, run.count, run.stride});
        return array;
    }

    template <typename T>
    static Value json(const T& part, Part) {
        boost::json::object object;
        JsonWriter writer(object);
        visit_fields(part, writer);
        return object;
    }

    boost::json::object& object_;
};

}  // namespace ddprun::protocol
