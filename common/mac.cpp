#include "common/mac.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "common/error.hpp"

namespace ddprun {

Mac hmac_sha256(std::span<const unsigned char> key, std::string_view text) {
    Mac result;
    unsigned int size = 0;
    const auto* const data = reinterpret_cast<const unsigned char*>(text.data());
    const auto* const made =
        ::HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), data, text.size(), result.data(), &size);
    if (made == nullptr || size != result.size())
        throw ErrorException(Error{Errc::kSystem, "OpenSSL cannot compute HMAC-SHA256"});
    return result;
}

bool equal_macs(const Mac& a, const Mac& b) { return ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

}  // namespace ddprun
