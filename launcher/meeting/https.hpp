#pragma once
// One HTTP request over TCP or TLS, blocking with a deadline. Called by EtcdPoint, which keeps no connection between
// its few calls.

#include <string>

#include "common/clock.hpp"
#include "common/endpoint.hpp"
#include "common/error.hpp"

namespace ddprun::launcher {

/// How the server is known, and this host to it. Files are PEM; empty: none.
struct TlsSettings {
    bool on = false;
    std::string ca_file;    ///< of the authority that has signed the server's certificate; empty: the system's
    std::string cert_file;  ///< this client's certificate
    std::string key_file;   ///< its private key
};

struct HttpRequest {
    std::string path;           ///< "/v3/kv/range"
    std::string body;           ///< JSON; empty: GET instead of POST
    std::string authorization;  ///< header of that name; empty: none
};

struct HttpAnswer {
    unsigned status = 0;
    std::string body;
    std::string own_address;  ///< numeric local address of the connection
};

/// Sends `request` to `server` and returns the answer. Errors: kUnreachable, kTimeout, kClosed, and
/// errc::connection_refused (another try may succeed); kMalformed (not HTTP), kRefused (TLS: the certificate is not
/// accepted, or the port does not speak TLS), kUsage (a file of `tls` cannot be used).
[[nodiscard]] Result<HttpAnswer> request_http(const Endpoint& server, const TlsSettings& tls,
                                              const HttpRequest& request, TimePoint deadline);

}  // namespace ddprun::launcher
