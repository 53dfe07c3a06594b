#pragma once
// WordHash64: a hash of large data against accidents (torn files, ranks that disagree), not against attacks. One core
// hashes about as fast as it reads memory. Each word of 8 bytes is mixed with its index (splitmix64: Steele et al.
// 2014, doi:10.1145/2714064.2660195), and the results are added up, so that words may be hashed in any order: the
// kernel ddp_hash (worker_lib/src/cuda/kernels/gradients.cu) has the same result. Every single changed word changes it.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace ddprun {

/// Hashes all data added so far, in pieces of any size. A last word that is not complete counts as one with zeros, so
/// the length is not part of the hash. A plain value.
class WordHash64 {
public:
    void add(std::span<const std::byte> bytes) {
        while (held_ != 0 && !bytes.empty()) {
            hold(bytes.front());
            bytes = bytes.subspan(1);
        }
        const std::size_t words = bytes.size() / kWordBytes;
        std::uint64_t sum = 0;
        std::uint64_t index = next_;
        for (std::size_t i = 0; i < words; ++i) {
            sum += mixed(load(&bytes[i * kWordBytes]) + index);
            index += kStep;
        }
        sum_ += sum;
        next_ = index;
        for (const std::byte byte : bytes.subspan(words * kWordBytes)) hold(byte);
    }
    [[nodiscard]] std::uint64_t value() const { return held_ == 0 ? sum_ : sum_ + mixed(word_ + next_); }

private:
    static_assert(std::endian::native == std::endian::little, "the words of the hash are little-endian");
    static constexpr std::size_t kWordBytes = 8;
    static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15;

    static std::uint64_t load(const std::byte* from) {
        std::uint64_t word = 0;
        std::memcpy(&word, from, kWordBytes);
        return word;
    }
    static std::uint64_t mixed(std::uint64_t x) {
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
        x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
        return x ^ (x >> 31);
    }
    void hold(std::byte byte) {
        word_ |= std::to_integer<std::uint64_t>(byte) << (8 * held_);
        if (++held_ < kWordBytes) return;
        sum_ += mixed(word_ + next_);
        next_ += kStep;
        word_ = held_ = 0;
    }

    std::uint64_t sum_ = 0;
    std::uint64_t next_ = kStep;  ///< the index of the next word, from 1, times kStep
    std::uint64_t word_ = 0;      ///< the bytes of a word that is not complete
    std::size_t held_ = 0;        ///< how many they are
};

}  // namespace ddprun
