#include "common/text/escape.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "common/text/cut.hpp"

namespace ddprun {

std::size_t control_length(std::string_view text) {
    if (text.empty()) return 0;
    const auto first = static_cast<unsigned char>(text[0]);
    if (first < 0x20 || first == 0x7f) return 1;
    if (first != 0xc2 || text.size() < 2) return 0;
    const auto second = static_cast<unsigned char>(text[1]);
    return second >= 0x80 && second < 0xa0 ? 2 : 0;
}

std::string without_sequences(std::string_view text) {
    constexpr char kEscape = '\x1b';
    std::string plain;
    for (std::size_t escape = 0; (escape = text.find(kEscape)) != text.npos;) {
        plain += text.substr(0, escape);
        text.remove_prefix(escape + 1);
        const char kind = text.empty() ? '\0' : text[0];
        std::size_t size = 1;
        if (kind == '[') {  // parameters, then one final byte
            while (size < text.size() && (text[size] < 0x40 || text[size] > 0x7e)) ++size;
            ++size;
        } else if (kind >= 0x20 && kind <= 0x2f) {  // intermediate bytes, then a final one: "ESC ( B"
            while (size < text.size() && text[size] >= 0x20 && text[size] <= 0x2f) ++size;
            ++size;
        } else if (kind == ']') {  // text, then BEL or ESC and a backslash
            while (size < text.size() && text[size] != '\a' && text[size] != kEscape) ++size;
            size += size < text.size() && text[size] == kEscape ? 2 : 1;
        }
        text.remove_prefix(std::min(size, text.size()));
    }
    return plain.append(text);
}

std::string escape_controls(std::string_view text) {
    std::string result;
    result.reserve(text.size());
    while (!text.empty()) {
        const std::size_t control = control_length(text);
        if (control == 0) {
            result += text[0];
            text.remove_prefix(1);
        } else {
            result += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[control - 1]));
            text.remove_prefix(control);
        }
    }
    return result;
}

std::string log_line(std::string_view text, std::size_t max_bytes) {
    return cut(escape_controls(cut(text, max_bytes)), max_bytes);
}

}  // namespace ddprun
