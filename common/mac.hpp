#pragma once
// HMAC-SHA256 by OpenSSL's libcrypto, for the secrets of worker groups and the proofs of their connections
// (docs/design/029). Any thread.

#include <array>
#include <span>
#include <string_view>

namespace ddprun {

using Mac = std::array<unsigned char, 32>;

/// Returns the HMAC-SHA256 of `text`. Throws ErrorException if libcrypto cannot compute it.
[[nodiscard]] Mac hmac_sha256(std::span<const unsigned char> key, std::string_view text);

/// Compares in a time that does not depend on the values.
[[nodiscard]] bool equal_macs(const Mac& a, const Mac& b);

}  // namespace ddprun
