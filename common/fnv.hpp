#pragma once
// FNV-1a with 64 bits: a hash against accidents (torn files, ranks that disagree), not against attacks. Every single
// changed byte changes the result. Source: Fowler, Noll, Vo; http://www.isthe.com/chongo/tech/comp/fnv/.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace ddprun {

/// Hashes all data added so far. A plain value.
class Fnv64 {
public:
    void add(std::span<const std::byte> bytes) {
        for (const std::byte byte : bytes) hash_ = (hash_ ^ static_cast<std::uint8_t>(byte)) * 0x100000001b3u;
    }
    void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
    void add_number(std::uint64_t value) { add(std::as_bytes(std::span(&value, 1))); }
    [[nodiscard]] std::uint64_t value() const { return hash_; }

private:
    std::uint64_t hash_ = 0xcbf29ce484222325u;
};

}  // namespace ddprun
