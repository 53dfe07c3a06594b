#pragma once
// Credentials and Security: how the two ends of a control connection recognise each other and encrypt it, by TLS 1.3
// with a key that both have instead of certificates (docs/design/027). OpenSSL stays in the .cpp. Used on the
// io_context's one thread.

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/error.hpp"

namespace boost::asio::ssl {
class context;
}
struct ssl_st;
namespace ddprun {
class JobKey;
}

namespace ddprun::transport {

/// A handle to the settings of TLS for one job key, in each role. Copies share them.
class Credentials {
public:
    /// Errors: kSystem, the OpenSSL here lacks a part of TLS 1.3 that is needed.
    [[nodiscard]] static Result<Credentials> make(const JobKey& key);

    /// An agent or a ddpctl connects with the first, a daemon accepts with the second.
    [[nodiscard]] boost::asio::ssl::context& for_client() const;
    [[nodiscard]] boost::asio::ssl::context& for_server() const;
    /// Returns where the job key is from, for messages.
    [[nodiscard]] const std::string& origin() const;

private:
    struct Contexts;
    explicit Credentials(std::shared_ptr<Contexts> contexts) : contexts_(std::move(contexts)) {}
    std::shared_ptr<Contexts> contexts_;
};

/// The rules of one end of connections. A connection over loopback is plain: it does not leave the host. Every other
/// one is TLS with `credentials`, or there is none; with `insecure` all are plain.
struct Security {
    std::optional<Credentials> credentials;  ///< absent: this end has no key
    bool insecure = false;
};

/// Returns the rules of an end that has `key`, if any. Errors: those of Credentials::make().
[[nodiscard]] Result<Security> make_security(const std::optional<JobKey>& key, bool insecure);

/// Returns whether the handshake of an OpenSSL connection used the key.
[[nodiscard]] bool shares_key(ssl_st* connection);

/// Return why a TLS handshake failed. `error`: OpenSSL's, in Asio's category.
/// As an agent: kUntrusted, the daemon has another key, or uses no TLS; kRefused, it is not a ddprund.
[[nodiscard]] Error tls_error_of_client(const boost::system::error_code& error, const Credentials& credentials);
/// As a daemon: kUntrusted, the peer has another key; kMalformed, it is not an agent.
[[nodiscard]] Error tls_error_of_server(const boost::system::error_code& error);

/// The answer to the first message of TLS where there is none: the alert insufficient_security, which
/// tls_error_of_client() understands.
inline constexpr std::string_view kNoTlsHere("\x15\x03\x03\x00\x02\x02\x47", 7);

}  // namespace ddprun::transport
