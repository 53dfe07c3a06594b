#pragma once
// Defines how each kind of member of a control message is bounded and written in JSON. field_table.hpp names the
// members; its visitors (json_writer.hpp, json_reader.hpp, the tests' generator) have one function per rule. Pure.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/ids.hpp"
#include "rendezvous/protocol/json.hpp"

namespace ddprun::protocol {

inline constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();
/// JSON numbers are exact up to here in every language.
inline constexpr std::int64_t kMaxExact = std::int64_t{1} << 53;
/// 36 years in nanoseconds: a receiver can add durations to times and to each other without overflow.
inline constexpr std::int64_t kMaxNanoseconds = std::int64_t{1} << 60;
inline constexpr std::int64_t kMaxMilliseconds = kMaxNanoseconds / 1'000'000;
inline constexpr std::int64_t kMaxRank = 1 << 27;
/// Limit of a name in a flight record: all names together must fit into one message.
inline constexpr std::size_t kMaxNameBytes = 1'024;

/// true or false.
struct Flag {};

/// An integer, an enum of ours over one, or a duration. A receiver refuses what is out of range; a sender cuts
/// durations and unsigned numbers to `high`.
struct Range {
    std::int64_t low = 0;
    std::int64_t high = kMaxInt;
};
inline constexpr Range kRankRange{0, kMaxRank};

/// A sender cuts the text to `max_bytes`; a receiver takes up to kMaxTextBytes.
struct Text {
    std::size_t max_bytes = kMaxTextBytes;
};
inline constexpr Text kName{kMaxNameBytes};

/// A list of texts of at most kMaxListBytes. A sender keeps the first or the last ones.
struct Texts {
    enum class Keep { kFirst, kLast };
    Keep keep = Keep::kFirst;
    Text each = {};
    std::size_t max_count = std::numeric_limits<std::size_t>::max();
};

/// An enumerator by its name.
template <typename Enum>
struct OneOf {
    std::span<const std::pair<Enum, std::string_view>> names;
    bool accepts_others = false;  ///< any other name is read as Enum{}
};

/// A number of 64 bits as hexadecimal text.
struct Hexadecimal {};

/// Runs of ranks as arrays [first, count, stride], at most `max_count`.
struct RankRuns {
    std::size_t max_count;
};

/// An object of its own, with the members that visit_fields() names.
struct Part {};

/// Returns the rule of a member for which the table names none.
template <typename T>
constexpr auto default_rule() {
    if constexpr (std::is_same_v<T, bool>) {
        return Flag{};
    } else if constexpr (std::is_same_v<T, std::string>) {
        return Text{};
    } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
        return Texts{};
    } else if constexpr (std::is_same_v<T, std::uint64_t> || std::is_same_v<T, Generation>) {
        return Range{0, kMaxExact};
    } else if constexpr (std::is_same_v<T, std::chrono::milliseconds>) {
        return Range{0, kMaxMilliseconds};
    } else if constexpr (std::is_same_v<T, std::chrono::nanoseconds>) {
        return Range{0, kMaxNanoseconds};
    } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
        return Range{};
    } else {
        return Part{};
    }
}
template <typename T>
using DefaultRule = decltype(default_rule<T>());

template <typename T>
inline constexpr bool kIsDuration = false;
template <typename Period>
inline constexpr bool kIsDuration<std::chrono::duration<std::int64_t, Period>> = true;

}  // namespace ddprun::protocol
