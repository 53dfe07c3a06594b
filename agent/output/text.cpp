#include "agent/output/text.hpp"

#include "common/text/escape.hpp"

namespace ddprun::agent {
namespace {

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

/// Returns the length of the well-formed UTF-8 sequence at the start of `bytes` (RFC 3629: no overlong forms, no
/// surrogates); 0 if there is none.
std::size_t sequence_length(std::string_view bytes) {
    const auto first = static_cast<unsigned char>(bytes[0]);
    if (first < 0x80) return 1;
    const std::size_t length = first >= 0xf0 && first <= 0xf4  ? 4
                               : first >= 0xe0 && first < 0xf0 ? 3
                               : first >= 0xc2 && first < 0xe0 ? 2
                                                               : 0;
    if (length == 0 || bytes.size() < length) return 0;
    for (std::size_t i = 1; i < length; ++i) {
        if (!is_continuation(bytes[i])) return 0;
    }
    const auto second = static_cast<unsigned char>(bytes[1]);
    const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
    const bool out_of_range = (first == 0xed && second >= 0xa0) || (first == 0xf4 && second >= 0x90);
    return overlong || out_of_range ? 0 : length;
}

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

std::string printable(std::string_view bytes, std::size_t max_bytes) {
    const bool cut = bytes.size() > max_bytes;
    std::string_view rest = bytes.substr(0, max_bytes);
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
        } else if (const std::size_t length = sequence_length(rest); length > 0) {
            text += rest.substr(0, length);
            taken = length;
        } else {
            text += "\xef\xbf\xbd";
        }
        rest.remove_prefix(taken);
    }
    if (cut) text += " …";
    return text;
}

}  // namespace ddprun::agent
