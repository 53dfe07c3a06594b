#include "common/checkpoint/json_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "common/text/utf8.hpp"

namespace ddprun::checkpoint {
namespace {

/// Appends a code point as UTF-8.
void append_utf8(std::string& text, unsigned code) {
    const auto add = [&](unsigned byte) { text += static_cast<char>(byte); };
    const auto follow = [&](int shift) { add(0x80 | ((code >> shift) & 0x3F)); };
    if (code < 0x80) return add(code);
    if (code < 0x800) {
        add(0xC0 | (code >> 6));
    } else if (code < 0x10000) {
        add(0xE0 | (code >> 12));
        follow(6);
    } else {
        add(0xF0 | (code >> 18));
        follow(12);
        follow(6);
    }
    follow(0);
}

bool is_surrogate(unsigned code, unsigned first) { return first <= code && code < first + 0x400; }

}  // namespace

void JsonReader::fail(std::string_view what) {
    if (!good()) return;
    error_ = fmt::format("at byte {}: {}", bytes_ - rest_.size(), what);
    rest_ = {};
}

void JsonReader::skip_space() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size())); }

bool JsonReader::accept(char sign) {
    skip_space();
    const bool here = rest_.starts_with(sign);
    if (here) rest_.remove_prefix(1);
    return here;
}

void JsonReader::expect(char sign) {
    if (!accept(sign)) fail(fmt::format("expected '{}'", sign));
}

void JsonReader::expect_end() {
    skip_space();
    if (!rest_.empty()) fail("expected the end");
}

std::uint64_t JsonReader::number() {
    skip_space();
    const std::string_view digits = rest_.substr(0, std::min(rest_.find_first_not_of("0123456789"), rest_.size()));
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const bool is_number = !digits.empty() && error == std::errc() && (digits.size() == 1 || digits.front() != '0');
    if (!is_number) {
        fail("expected a whole number below 2^64");
        return 0;
    }
    rest_.remove_prefix(digits.size());
    return value;
}

unsigned JsonReader::hex_digits() {
    unsigned code = 0;
    const std::string_view digits = rest_.substr(0, 4);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (digits.size() < 4 || error != std::errc() || end != digits.data() + digits.size()) {
        fail("expected four hexadecimal digits");
        return 0;
    }
    rest_.remove_prefix(4);
    return code;
}

/// Reads what follows a backslash.
void JsonReader::add_escape(std::string& text) {
    constexpr std::string_view kSigns = "\"\\/bfnrt";
    constexpr std::string_view kMeant = "\"\\/\b\f\n\r\t";
    const char sign = rest_.empty() ? '\0' : rest_.front();
    rest_.remove_prefix(rest_.empty() ? 0 : 1);
    if (const auto at = kSigns.find(sign); at != std::string_view::npos) {
        text += kMeant[at];
        return;
    }
    if (sign != 'u') return fail("an unknown escape");
    unsigned code = hex_digits();
    if (is_surrogate(code, 0xD800) && rest_.starts_with("\\u")) {
        rest_.remove_prefix(2);
        const unsigned low = hex_digits();
        if (!is_surrogate(low, 0xDC00)) return fail("an unpaired surrogate");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (is_surrogate(code, 0xD800) || is_surrogate(code, 0xDC00)) {
        return fail("an unpaired surrogate");
    }
    append_utf8(text, code);
}

std::string JsonReader::string() {
    std::string text;
    skip_space();
    if (!accept('"')) {
        fail("expected a string");
        return {};
    }
    while (good()) {
        if (rest_.empty()) {
            fail("a string without an end");
        } else if (rest_.front() == '"') {
            rest_.remove_prefix(1);
            return text;
        } else if (rest_.front() == '\\') {
            rest_.remove_prefix(1);
            add_escape(text);
        } else if (static_cast<unsigned char>(rest_.front()) < 0x20) {
            fail("a control character in a string");
        } else if (const std::size_t bytes = character_bytes(rest_); bytes == 0) {
            fail("text that is not UTF-8");
        } else {
            text += rest_.substr(0, bytes);
            rest_.remove_prefix(bytes);
        }
    }
    return {};
}

}  // namespace ddprun::checkpoint
