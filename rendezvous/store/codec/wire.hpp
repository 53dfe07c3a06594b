#pragma once
// Reads and writes numbers and byte strings as on the TCPStore wire: little-endian, strings with a u64 length before
// them. Used by the server's codec and by the client. Pure.

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace ddprun::store::wire {

inline constexpr std::uint32_t kMagic = 0x3C85F7CE;  ///< the argument of VALIDATE
inline constexpr char kStopWaiting = 0;              ///< answers a WAIT whose keys are there
inline constexpr char kWaitCanceled = 1;             ///< answers CANCEL_WAIT

template <std::integral T>
void append_number(std::string& out, T value) {
    std::array<char, sizeof(T)> bytes;
    std::memcpy(bytes.data(), &value, sizeof(T));
    if constexpr (std::endian::native == std::endian::big) std::ranges::reverse(bytes);
    out.append(bytes.data(), bytes.size());
}

/// Reads sizeof(T) bytes from `bytes`, which must hold that many.
template <std::integral T>
[[nodiscard]] T load_number(const char* bytes) {
    std::array<char, sizeof(T)> copy;
    std::memcpy(copy.data(), bytes, sizeof(T));
    if constexpr (std::endian::native == std::endian::big) std::ranges::reverse(copy);
    return std::bit_cast<T>(copy);
}

/// Appends the length of `bytes`, then `bytes`.
inline void append_bytes(std::string& out, std::string_view bytes) {
    append_number<std::uint64_t>(out, bytes.size());
    out.append(bytes);
}

}  // namespace ddprun::store::wire
