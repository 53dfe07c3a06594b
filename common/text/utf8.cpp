#include "common/text/utf8.hpp"

#include "common/text/cut.hpp"
#include "common/text/escape.hpp"

namespace ddprun {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

unsigned byte_at(std::string_view text, std::size_t at) {
    return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u;
}

bool within(unsigned value, unsigned low, unsigned high) { return low <= value && value <= high; }

/// Returns the length of the escape sequence at the start of `bytes`, which begins with ESC: "ESC [ … letter", or ESC
/// and one more byte.
std::size_t escape_length(std::string_view bytes) {
    if (bytes.size() < 2) return 1;
    if (bytes[1] != '[') return 2;
    std::size_t at = 2;
    while (at < bytes.size() && bytes[at] >= 0x20 && bytes[at] < 0x40) ++at;
    return at < bytes.size() ? at + 1 : at;
}

}  // namespace

// The ranges of the second byte exclude overlong forms, surrogates and what is beyond U+10FFFF (the Unicode Standard,
// table 3-7).
std::size_t character_bytes(std::string_view text) {
    if (text.empty()) return 0;
    const unsigned first = byte_at(text, 0);
    const unsigned second = byte_at(text, 1);
    const bool third = within(byte_at(text, 2), 0x80, 0xBF);
    const bool fourth = within(byte_at(text, 3), 0x80, 0xBF);
    if (first < 0x80) return 1;
    if (within(first, 0xC2, 0xDF)) return within(second, 0x80, 0xBF) ? 2 : 0;
    if (within(first, 0xE0, 0xEF)) {
        const unsigned low = first == 0xE0 ? 0xA0 : 0x80;
        const unsigned high = first == 0xED ? 0x9F : 0xBF;
        return within(second, low, high) && third ? 3 : 0;
    }
    if (within(first, 0xF0, 0xF4)) {
        const unsigned low = first == 0xF0 ? 0x90 : 0x80;
        const unsigned high = first == 0xF4 ? 0x8F : 0xBF;
        return within(second, low, high) && third && fourth ? 4 : 0;
    }
    return 0;
}

std::string clean_text(std::string_view text, std::size_t max_bytes) {
    std::string clean;
    while (!text.empty() && clean.size() <= max_bytes) {
        const std::size_t bytes = character_bytes(text);
        clean += bytes == 0 ? kReplacement : text.substr(0, bytes);
        text.remove_prefix(bytes == 0 ? 1 : bytes);
    }
    return cut(clean, max_bytes);
}

std::string printable(std::string_view bytes, std::size_t max_bytes) {
    const std::size_t kept = whole_characters(bytes, max_bytes);
    std::string_view rest = bytes.substr(0, kept);
    std::string text;
    text.reserve(rest.size());
    while (!rest.empty()) {
        const char c = rest[0];
        std::size_t taken = 1;
        if (c == '\x1b') {
            taken = escape_length(rest);
        } else if (c == '\n' || c == '\t') {
            text += c;
        } else if (const std::size_t control = control_length(rest); control > 0) {
            text += escape_controls(rest.substr(0, control));
            taken = control;
        } else if (const std::size_t length = character_bytes(rest); length > 0) {
            text += rest.substr(0, length);
            taken = length;
        } else {
            text += kReplacement;
        }
        rest.remove_prefix(taken);
    }
    if (kept < bytes.size()) text.append(" ").append(kCutMark);
    return text;
}

}  // namespace ddprun
