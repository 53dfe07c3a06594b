#pragma once
// Fields: the members of one JSON object of a control message, read and checked. Private to the decoders.

#include <boost/json.hpp>

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/coordinator/messages_json.hpp"

namespace ddprun::coordinator {

inline constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();
inline constexpr std::int64_t kMaxGeneration = std::int64_t{1} << 53;

/// Reads the members of one object. The first problem is kept and names its member; after it every read gives a value
/// of no meaning, so that a message is read straight through and the problem is looked at once.
class Fields {
public:
    Fields(const boost::json::value& value, std::string path, std::optional<Error>& problem)
        : object_(value.if_object()), path_(std::move(path)), problem_(problem) {
        if (object_ == nullptr) fail(Errc::kMalformed, path_.empty() ? "the message" : path_, "must be an object");
    }

    bool has(std::string_view key) const {
        const boost::json::value* value = object_ ? object_->if_contains(key) : nullptr;
        return value != nullptr && !value->is_null();
    }

    std::int64_t integer(std::string_view key, std::int64_t low, std::int64_t high) {
        const boost::json::value* value = member(key);
        if (value == nullptr) return low;
        if (value->is_uint64()) return out_of_range(key, low, high);  // Boost.JSON: beyond int64
        if (!value->is_int64()) return fail(Errc::kMalformed, full(key), "must be an integer"), low;
        if (value->get_int64() < low || value->get_int64() > high) return out_of_range(key, low, high);
        return value->get_int64();
    }

    int small(std::string_view key, std::int64_t low, std::int64_t high = kMaxInt) {
        return static_cast<int>(integer(key, low, high));
    }

    bool boolean(std::string_view key) {
        const boost::json::value* value = member(key);
        if (value == nullptr) return false;
        if (!value->is_bool()) fail(Errc::kMalformed, full(key), "must be true or false");
        return value->is_bool() && value->get_bool();
    }

    std::string text(std::string_view key) {
        const boost::json::value* value = member(key);
        return value ? text_of(*value, full(key)) : std::string();
    }

    std::vector<std::string> list(std::string_view key) {
        const boost::json::value* value = member(key);
        if (value == nullptr) return {};
        if (!value->is_array())
            return fail(Errc::kMalformed, full(key), "must be an array"), std::vector<std::string>();
        std::vector<std::string> result;
        std::size_t bytes = 0;
        for (const boost::json::value& item : value->get_array()) {
            result.push_back(text_of(item, full(key) + "[]"));
            bytes += result.back().size() + 1;
            if (bytes > kMaxListBytes) {
                fail(Errc::kLimit, full(key), fmt::format("is larger than {} bytes", kMaxListBytes));
                break;
            }
        }
        return result;
    }

    Fields object(std::string_view key) {
        const boost::json::value* value = member(key);
        static const boost::json::value kNothing = boost::json::object();
        return Fields(value ? *value : kNothing, full(key), problem_);
    }

    /// Calls read(Fields) for each object of an array of at most `most`.
    template <typename Read>
    void each(std::string_view key, std::size_t most, Read read) {
        const boost::json::value* value = member(key);
        if (value == nullptr) return;
        if (!value->is_array()) return fail(Errc::kMalformed, full(key), "must be an array");
        if (value->get_array().size() > most)
            return fail(Errc::kLimit, full(key), fmt::format("has more than {} entries", most));
        for (const boost::json::value& item : value->get_array()) read(Fields(item, full(key) + "[]", problem_));
    }

    /// An array of at most `most` arrays of three integers each.
    std::vector<std::array<std::int64_t, 3>> triples(std::string_view key, std::size_t most) {
        std::vector<std::array<std::int64_t, 3>> result;
        const boost::json::value* value = member(key);
        if (value == nullptr) return result;
        const bool fits = value->is_array() && value->get_array().size() <= most;
        for (std::size_t i = 0; fits && i < value->get_array().size(); ++i) {
            const boost::json::array* three = value->get_array()[i].if_array();
            if (three == nullptr || three->size() != 3) break;
            std::array<std::int64_t, 3>& numbers = result.emplace_back();
            for (std::size_t k = 0; k < 3; ++k) {
                const std::int64_t* number = (*three)[k].if_int64();
                if (number == nullptr || *number > kMaxInt || *number < -kMaxInt) return fail_at(key, kTriples), result;
                numbers[k] = *number;
            }
        }
        if (!fits || result.size() != value->get_array().size()) fail_at(key, kTriples);
        return result;
    }

    void fail_at(std::string_view key, std::string_view why) { fail(Errc::kMalformed, full(key), why); }

private:
    static constexpr std::string_view kTriples = "must be a short list of three integers each";

    std::string full(std::string_view key) const {
        return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
    }

    const boost::json::value* member(std::string_view key) {
        const boost::json::value* value = object_ ? object_->if_contains(key) : nullptr;
        if (value == nullptr) fail(Errc::kMalformed, full(key), "is missing");
        return value;
    }

    std::string text_of(const boost::json::value& value, const std::string& where) {
        if (!value.is_string()) return fail(Errc::kMalformed, where, "must be a string"), std::string();
        if (value.get_string().size() > kMaxTextBytes) {
            fail(Errc::kLimit, where, fmt::format("is longer than {} bytes", kMaxTextBytes));
            return {};
        }
        return std::string(value.get_string());
    }

    std::int64_t out_of_range(std::string_view key, std::int64_t low, std::int64_t high) {
        fail(Errc::kMalformed, full(key), fmt::format("must be between {} and {}", low, high));
        return low;
    }

    void fail(Errc code, std::string_view where, std::string_view why) {
        if (!problem_) problem_ = Error{code, fmt::format("a control message is malformed: {} {}", where, why)};
    }

    const boost::json::object* object_;
    std::string path_;
    std::optional<Error>& problem_;
};

}  // namespace ddprun::coordinator
