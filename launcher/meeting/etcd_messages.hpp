#pragma once
// The requests of a meeting point to etcd's v3 JSON gateway, and its answers. Keys and values travel as base64, 64-bit
// numbers as text. Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/error.hpp"
#include "launcher/meeting/meeting_point.hpp"

namespace ddprun::launcher::etcd {

inline constexpr std::string_view kRangePath = "/v3/kv/range";
inline constexpr std::string_view kTxnPath = "/v3/kv/txn";
inline constexpr std::string_view kLoginPath = "/v3/auth/authenticate";

/// Base64 of RFC 4648, with padding.
[[nodiscard]] std::string to_base64(std::string_view bytes);
/// Returns nullopt if `text` is no such base64.
[[nodiscard]] std::optional<std::string> from_base64(std::string_view text);

/// Asks for the value of `key`.
[[nodiscard]] std::string range_request(std::string_view key);
/// Puts `value` if the key is absent or, with `replaces`, if it has this version; else asks for the value there.
[[nodiscard]] std::string claim_request(std::string_view key, std::string_view value,
                                        std::optional<std::int64_t> replaces);
/// Deletes the key if it has this version.
[[nodiscard]] std::string withdraw_request(std::string_view key, std::int64_t version);
[[nodiscard]] std::string login_request(std::string_view user, std::string_view password);

/// Parse the answers to these requests. Errors: kMalformed.
[[nodiscard]] Result<std::optional<Published>> parse_range(std::string_view body);
/// `value` is that of the request. A value there that equals it is this agent's own: an earlier try has succeeded.
[[nodiscard]] Result<Claim> parse_claim(std::string_view body, std::string_view value);
/// Returns the token for the header Authorization.
[[nodiscard]] Result<std::string> parse_login(std::string_view body);

/// The meaning of an answer that is no success.
enum class Failure {
    kTryAgain,    ///< it has no leader, or is overloaded: another try may succeed
    kLogin,       ///< user and password are missing or wrong
    kToken,       ///< the token has expired
    kPermission,  ///< the user may not read or write this key
    kNoGateway,   ///< an answer of another kind: it is an etcd without the v3 gateway, or no etcd
    kWantsTls,    ///< the port expects https
    kCommonName,  ///< with users the gateway takes no client certificate that has a common name
    kOther,
};

struct FailedAnswer {
    Failure failure = Failure::kOther;
    std::string text;  ///< as etcd says, safe for a terminal
};

/// Classifies an answer with an HTTP status other than 200.
[[nodiscard]] FailedAnswer parse_failure(unsigned status, std::string_view body);

/// Returns the version of the etcd that has answered GET /version; nullopt: it is no etcd.
[[nodiscard]] std::optional<std::string> parse_version(std::string_view body);

}  // namespace ddprun::launcher::etcd
