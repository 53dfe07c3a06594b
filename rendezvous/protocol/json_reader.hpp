#pragma once
// JsonReader: reads and checks the members of one message or part. A visitor of field_table.hpp; private to json.cpp.
// It keeps the first problem, which names its member. A member that cannot be read keeps its default, so a message is
// read straight through, and json.cpp looks for a problem once, at the end.

#include <boost/json.hpp>

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/protocol/field_table.hpp"

namespace ddprun::protocol {

class JsonReader {
public:
    using Value = boost::json::value;

    /// `path`: where `value` is in the message; empty for the message itself.
    JsonReader(const Value& value, std::string path, std::optional<Error>& problem)
        : object_(value.if_object()), path_(std::move(path)), problem_(problem) {
        if (object_ == nullptr) fail(path_.empty() ? "the message" : path_, "must be an object");
    }

    template <typename T, typename Rule = DefaultRule<T>>
    void operator()(std::string_view key, T& value, const Rule& rule = default_rule<T>()) {
        if (const Value* found = member(key)) read(*found, path_of(key), value, rule);
    }

    template <typename T, typename Rule = DefaultRule<T>>
    void optional(std::string_view key, T& value, const Rule& rule = default_rule<T>(), const T& = {}) {
        if (has(key)) (*this)(key, value, rule);
    }

    template <typename T, typename Rule = DefaultRule<T>>
    void optional(std::string_view key, std::optional<T>& value, const Rule& rule = default_rule<T>()) {
        if (has(key)) (*this)(key, value.emplace(), rule);
    }

    template <typename T, typename... More>
    void each(std::string_view key, std::vector<T>& parts, std::size_t max_items, More... more) {
        const boost::json::array* array = array_of(key, max_items);
        if (array == nullptr) return;
        parts.clear();  // of the value that an absent list stands for
        for (const Value& item : *array) {
            JsonReader reader(item, path_of(key) + "[]", problem_);
            visit_fields(parts.emplace_back(), reader, more...);
        }
    }

    template <typename T>
    void optional_each(std::string_view key, std::vector<T>& parts, std::size_t max_items) {
        if (has(key)) each(key, parts, max_items);
    }

    bool mark(std::string_view key) const { return has(key); }

    void fail_at(std::string_view key, std::string_view why) { fail(path_of(key), why); }

private:
    void read(const Value& value, const std::string& path, bool& into, Flag) {
        if (!value.is_bool()) return fail(path, "must be true or false");
        into = value.get_bool();
    }

    template <typename T>
    void read(const Value& value, const std::string& path, T& into, Range range) {
        if (!value.is_int64() && !value.is_uint64()) return fail(path, "must be an integer");
        // Boost.JSON has an unsigned number only beyond the range of int64.
        if (value.is_uint64() || value.get_int64() < range.low || value.get_int64() > range.high) {
            return fail(path, fmt::format("must be between {} and {}", range.low, range.high));
        }
        into = static_cast<T>(value.get_int64());
    }

    void read(const Value& value, const std::string& path, std::string& into, Text) {
        if (!value.is_string()) return fail(path, "must be a string");
        if (value.get_string().size() > kMaxTextBytes) {
            return fail(path, fmt::format("is longer than {} bytes", kMaxTextBytes), Errc::kLimit);
        }
        into = std::string(value.get_string());
    }

    void read(const Value& value, const std::string& path, std::vector<std::string>& into, const Texts& texts) {
        if (!value.is_array()) return fail(path, "must be an array");
        std::size_t bytes = 0;
        for (const Value& item : value.get_array()) {
            read(item, path + "[]", into.emplace_back(), texts.each);
            bytes += into.back().size() + 1;
            if (bytes > kMaxListBytes) {
                return fail(path, fmt::format("is larger than {} bytes", kMaxListBytes), Errc::kLimit);
            }
        }
    }

    template <typename Enum>
    void read(const Value& value, const std::string& path, Enum& into, const OneOf<Enum>& one_of) {
        std::string text;
        read(value, path, text, Text{});
        std::string known;
        for (const auto& [enumerator, name] : one_of.names) {
            if (text == name) {
                into = enumerator;
                return;
            }
            known += fmt::format("{}\"{}\"", known.empty() ? "" : " or ", name);
        }
        if (!one_of.accepts_others) fail(path, "must be " + known);
    }

    void read(const Value& value, const std::string& path, std::uint64_t& into, Hexadecimal) {
        std::string text;
        read(value, path, text, Text{});
        const char* end = text.data() + text.size();
        const auto parsed = std::from_chars(text.data(), end, into, 16);
        if (parsed.ec != std::errc() || parsed.ptr != end) fail(path, "must be a hexadecimal number");
    }

    void read(const Value& value, const std::string& path, std::vector<RankRun>& into, RankRuns runs) {
        constexpr std::string_view kExpected = "must be a short list of three integers each";
        if (!value.is_array() || value.get_array().size() > runs.max_count) return fail(path, kExpected);
        for (const Value& item : value.get_array()) {
            std::int64_t numbers[3];
            if (!item.is_array() || item.get_array().size() != 3) return fail(path, kExpected);
            for (std::size_t i = 0; i < 3; ++i) {
                const std::int64_t* number = item.get_array()[i].if_int64();
                if (number == nullptr || *number > kMaxInt || *number < -kMaxInt) return fail(path, kExpected);
                numbers[i] = *number;
            }
            // Accepts only runs of ranks that can exist: their readers multiply these numbers.
            const auto [first, count, stride] = numbers;
            const std::int64_t last = first + (count - 1) * stride;
            if (first < 0 || first > kMaxRank || count <= 0 || count > kMaxRank || last < 0 || last > kMaxRank) {
                return fail(path, "has a run beyond all ranks");
            }
            into.push_back({static_cast<int>(first), static_cast<int>(count), static_cast<int>(stride)});
        }
    }

    template <typename T>
    void read(const Value& value, const std::string& path, T& into, Part) {
        JsonReader reader(value, path, problem_);
        visit_fields(into, reader);
    }

    const boost::json::array* array_of(std::string_view key, std::size_t max_items) {
        const Value* value = member(key);
        const boost::json::array* array = value ? value->if_array() : nullptr;
        if (value != nullptr && array == nullptr) fail_at(key, "must be an array");
        if (array == nullptr || array->size() <= max_items) return array;
        fail(path_of(key), fmt::format("has more than {} entries", max_items), Errc::kLimit);
        return nullptr;
    }

    bool has(std::string_view key) const {
        const Value* value = object_ ? object_->if_contains(key) : nullptr;
        return value != nullptr && !value->is_null();
    }

    const Value* member(std::string_view key) {
        const Value* value = object_ ? object_->if_contains(key) : nullptr;
        if (value == nullptr) fail_at(key, "is missing");
        return value;
    }

    std::string path_of(std::string_view key) const {
        return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
    }

    void fail(std::string_view path, std::string_view why, Errc code = Errc::kMalformed) {
        if (!problem_) problem_ = Error{code, fmt::format("a control message is malformed: {} {}", path, why)};
    }

    const boost::json::object* object_;
    std::string path_;
    std::optional<Error>& problem_;
};

}  // namespace ddprun::protocol
