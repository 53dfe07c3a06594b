#pragma once
// Implements SipHash, a keyed hash (Aumasson and Bernstein 2012, https://www.aumasson.jp/siphash/siphash.pdf). A client
// that chooses keys and does not know the seed cannot make them collide. Pure.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace ddprun::store {

/// The secret key of a store's hash function.
struct HashSeed {
    std::uint64_t first = 0;
    std::uint64_t second = 0;
};

/// Returns the hash of `text`, with kRounds for each 8 bytes and kLastRounds at the end. The paper's function is
/// siphash<2, 4>; siphash<1, 3> is enough for hash tables.
template <int kRounds, int kLastRounds>
[[nodiscard]] std::uint64_t siphash(const HashSeed& seed, std::string_view text) noexcept {
    std::uint64_t a = seed.first ^ 0x736f6d6570736575u;
    std::uint64_t b = seed.second ^ 0x646f72616e646f6du;
    std::uint64_t c = seed.first ^ 0x6c7967656e657261u;
    std::uint64_t d = seed.second ^ 0x7465646279746573u;
    const auto mix = [&](int rounds) {
        for (; rounds > 0; --rounds) {
            a += b, c += d;
            b = std::rotl(b, 13) ^ a, d = std::rotl(d, 16) ^ c;
            a = std::rotl(a, 32);
            c += b, a += d;
            b = std::rotl(b, 17) ^ c, d = std::rotl(d, 21) ^ a;
            c = std::rotl(c, 32);
        }
    };
    const auto take = [&](std::uint64_t word) {
        d ^= word;
        mix(kRounds);
        a ^= word;
    };
    const char* at = text.data();
    for (std::size_t words = text.size() / 8; words > 0; --words, at += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, at, 8);
        take(word);
    }
    std::uint64_t last = static_cast<std::uint64_t>(text.size()) << 56;
    for (std::size_t i = 0; i < text.size() % 8; ++i) {
        last |= static_cast<std::uint64_t>(static_cast<unsigned char>(at[i])) << (8 * i);
    }
    take(last);
    c ^= 0xff;
    mix(kLastRounds);
    return a ^ b ^ c ^ d;
}

/// Returns the hash by which the store finds a key.
[[nodiscard]] inline std::uint64_t hash_of(const HashSeed& seed, std::string_view key) noexcept {
    return siphash<1, 3>(seed, key);
}

/// Lets an unordered_map with std::string keys be searched by a view.
struct SeededHash {
    using is_transparent = void;
    HashSeed seed;
    std::size_t operator()(std::string_view text) const noexcept { return hash_of(seed, text); }
};

}  // namespace ddprun::store
