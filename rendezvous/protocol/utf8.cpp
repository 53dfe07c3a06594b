#include "rendezvous/protocol/utf8.hpp"

#include <cassert>

namespace ddprun::protocol {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr std::string_view kEllipsis = "\xE2\x80\xA6";

unsigned byte_at(std::string_view text, std::size_t at) {
    return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u;
}

bool within(unsigned value, unsigned low, unsigned high) { return low <= value && value <= high; }

/// Returns the number of bytes of the well-formed character at `at`, or 0. The ranges of the second byte exclude
/// overlong forms, surrogates and what is beyond U+10FFFF (the Unicode Standard, table 3-7).
std::size_t character_bytes(std::string_view text, std::size_t at) {
    const unsigned first = byte_at(text, at);
    const unsigned second = byte_at(text, at + 1);
    const bool third = within(byte_at(text, at + 2), 0x80, 0xBF);
    const bool fourth = within(byte_at(text, at + 3), 0x80, 0xBF);
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

}  // namespace

std::string clean_text(std::string_view text, std::size_t max_bytes) {
    assert(max_bytes >= kEllipsis.size());
    std::string clean;
    std::size_t room_for_ellipsis = 0;  // the longest prefix of `clean` after which the ellipsis still fits
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t bytes = character_bytes(text, at);
        clean += bytes == 0 ? kReplacement : text.substr(at, bytes);
        at += bytes == 0 ? 1 : bytes;
        if (clean.size() > max_bytes) return clean.substr(0, room_for_ellipsis).append(kEllipsis);
        if (clean.size() + kEllipsis.size() <= max_bytes) room_for_ellipsis = clean.size();
    }
    return clean;
}

}  // namespace ddprun::protocol
