#include "common/word_hash.hpp"

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "tests/catch.hpp"

using ddprun::WordHash64;

namespace {

using HashedBytes = std::vector<std::byte>;

HashedBytes random_bytes(std::size_t count) {
    HashedBytes bytes(count);
    std::mt19937 random(1);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    return bytes;
}

std::uint64_t hash_of(std::span<const std::byte> bytes) {
    WordHash64 hash;
    hash.add(bytes);
    return hash.value();
}

}  // namespace

TEST_CASE("a word hash is the sum of its mixed words", "[common]") {
    const HashedBytes bytes = random_bytes(GENERATE(0u, 1u, 7u, 8u, 9u, 4098u));
    std::uint64_t right = 0;
    for (std::size_t i = 0; i * 8 < bytes.size(); ++i) {
        std::uint64_t x = 0;
        std::memcpy(&x, &bytes[i * 8], std::min<std::size_t>(8, bytes.size() - i * 8));
        x += (i + 1) * 0x9e3779b97f4a7c15;
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
        x = (x ^ x >> 27) * 0x94d049bb133111eb;
        right += x ^ x >> 31;
    }
    CHECK(hash_of(bytes) == right);
}

// The format of checkpoints: these values never change.
TEST_CASE("a word hash has its published values", "[common]") {
    CHECK(hash_of({}) == 0);
    const HashedBytes zeros(16);
    CHECK(hash_of(std::span(zeros).first(8)) == 0xe220a8397b1dcdaf);   // the first number of splitmix64 with seed 0
    CHECK(hash_of(zeros) == 0xe220a8397b1dcdaf + 0x6e789e6aa1b965f4);  // and the second one
}

TEST_CASE("a word hash does not depend on the pieces", "[common]") {
    const HashedBytes bytes = random_bytes(1001);
    std::mt19937 random(2);
    for (int i = 0; i < 100; ++i) {
        WordHash64 hash;
        for (std::size_t done = 0; done < bytes.size();) {
            const std::size_t piece = std::min<std::size_t>(random() % (i % 2 == 0 ? 5 : 300), bytes.size() - done);
            hash.add(std::span(bytes).subspan(done, piece));
            done += piece;
        }
        CHECK(hash.value() == hash_of(bytes));
    }
}

TEST_CASE("a word hash depends on every byte and its place", "[common]") {
    const HashedBytes bytes = random_bytes(203);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        HashedBytes other = bytes;
        other[i] ^= std::byte{4};
        CHECK(hash_of(other) != hash_of(bytes));
    }
    HashedBytes other = bytes;
    std::swap_ranges(other.begin(), other.begin() + 8, other.begin() + 8);
    CHECK(hash_of(other) != hash_of(bytes));
}
