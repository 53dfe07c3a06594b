#include "rendezvous/transport/tls.hpp"

#include <fmt/format.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/ssl.h>

#include <array>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/system/system_error.hpp>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "common/job_key.hpp"

namespace ddprun::transport {
namespace {

namespace ssl = boost::asio::ssl;

/// The name of the key in the handshake, and its label in the derivation: a key for connections of this kind in this
/// direction alone. It is not a secret.
constexpr std::string_view kIdentity = "ddprun control 1, client to daemon";
constexpr const char* kCipherSuite = "TLS_AES_128_GCM_SHA256";
constexpr const char* kGroup = "P-256";  // hosts in FIPS mode have no X25519
constexpr unsigned char kCipherSuiteId[] = {0x13, 0x01};
/// The lifetime of the key for OpenSSL, which counts it by the time of day: longer than any job and any step of a
/// clock.
constexpr long kLifetimeSeconds = 2'000'000'000;

template <auto Free>
struct Freed {
    template <typename T>
    void operator()(T* object) const {
        Free(object);
    }
};
using Session = std::unique_ptr<SSL_SESSION, Freed<SSL_SESSION_free>>;
using Connection = std::unique_ptr<SSL, Freed<SSL_free>>;

/// Derives the key of TLS connections by HKDF-SHA256. Returns false if OpenSSL cannot.
bool derive(std::span<const unsigned char, JobKey::kBytes> job_key, JobKey::Bytes& key) {
    const std::unique_ptr<EVP_KDF, Freed<EVP_KDF_free>> hkdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr));
    const std::unique_ptr<EVP_KDF_CTX, Freed<EVP_KDF_CTX_free>> context(EVP_KDF_CTX_new(hkdf.get()));
    if (!context) return false;
    std::string digest = "SHA256";
    std::string label(kIdentity);
    JobKey::Bytes secret;
    std::memcpy(secret.data(), job_key.data(), secret.size());
    const std::array parameters{OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), 0),
                                OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, secret.data(), secret.size()),
                                OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, label.data(), label.size()),
                                OSSL_PARAM_construct_end()};
    return EVP_KDF_derive(context.get(), key.data(), key.size(), parameters.data()) == 1;
}

/// Returns the key as OpenSSL takes it: a TLS 1.3 session that both ends are to resume.
Session session_of(SSL_CTX* context, const JobKey::Bytes& key) {
    const Connection connection(SSL_new(context));
    Session session(SSL_SESSION_new());
    const SSL_CIPHER* const cipher = connection ? SSL_CIPHER_find(connection.get(), kCipherSuiteId) : nullptr;
    const bool set = session && cipher != nullptr && SSL_SESSION_set_cipher(session.get(), cipher) == 1 &&
                     SSL_SESSION_set1_master_key(session.get(), key.data(), key.size()) == 1 &&
                     SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION) == 1 &&
                     SSL_SESSION_set_timeout(session.get(), kLifetimeSeconds) != 0;
    return set ? std::move(session) : Session();
}

void free_session(void*, void* session, CRYPTO_EX_DATA*, int, long, void*) {
    SSL_SESSION_free(static_cast<SSL_SESSION*>(session));
}

/// Returns the index at which a context owns its session. (Asio has the app data.)
int session_index() {
    static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, free_session);
    return index;
}

SSL_SESSION* session_for(SSL* connection) {
    auto* const session = static_cast<SSL_SESSION*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(connection), session_index()));
    SSL_SESSION_up_ref(session);
    return session;
}

int use_key(SSL* connection, const EVP_MD*, const unsigned char** identity, std::size_t* size, SSL_SESSION** session) {
    *identity = reinterpret_cast<const unsigned char*>(kIdentity.data());
    *size = kIdentity.size();
    *session = session_for(connection);
    return 1;
}

int find_key(SSL* connection, const unsigned char* identity, std::size_t size, SSL_SESSION** session) {
    const bool known = std::string_view(reinterpret_cast<const char*>(identity), size) == kIdentity;
    *session = known ? session_for(connection) : nullptr;  // without one the handshake fails: there is no certificate
    return 1;
}

/// Gives the context its key. Returns false if OpenSSL cannot.
bool set_key(SSL_CTX* context, const JobKey::Bytes& key) {
    Session session = session_of(context, key);
    if (!session || SSL_CTX_set_ex_data(context, session_index(), session.get()) != 1) return false;
    static_cast<void>(session.release());  // it belongs to the context
    return true;
}

/// Allows one version, one cipher suite and one group, a new Diffie-Hellman exchange in every handshake, and nothing
/// else: no certificate, no session to resume, no early data.
bool restrict(SSL_CTX* context) {
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    // A daemon has thousands of connections that are idle: they keep no buffers. TlsStream copies what it writes.
    SSL_CTX_set_mode(context,
                     SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_read_ahead(context, 1);  // else each record takes two reads
    SSL_CTX_set_options(context, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_clear_options(context, SSL_OP_ALLOW_NO_DHE_KEX);
    return SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_ciphersuites(context, kCipherSuite) == 1 && SSL_CTX_set1_groups_list(context, kGroup) == 1 &&
           SSL_CTX_set_num_tickets(context, 0) == 1 && SSL_CTX_set_max_early_data(context, 0) == 1 &&
           SSL_CTX_set_recv_max_early_data(context, 0) == 1;
}

Error cannot_set_up(std::string_view why) {
    const char* const file = std::getenv("OPENSSL_CONF");
    return {Errc::kSystem,
            fmt::format("cannot set up TLS 1.3 ({} with {}): {}. Check the configuration of OpenSSL on this node ({}), "
                        "or pass --insecure to all nodes of the job.",
                        kCipherSuite, kGroup, why,
                        file != nullptr ? fmt::format("OPENSSL_CONF={}", file) : "`openssl version -d` shows where")};
}

Error cannot_set_up() {
    std::array<char, 256> text{};
    ERR_error_string_n(ERR_get_error(), text.data(), text.size());
    return cannot_set_up(text.data());
}

int reason_of(const boost::system::error_code& error) {
    return ERR_GET_REASON(static_cast<unsigned long>(error.value()));
}

}  // namespace

struct Credentials::Contexts {
    ssl::context client{ssl::context::tls_client};
    ssl::context server{ssl::context::tls_server};
    std::string origin;
};

Result<Credentials> Credentials::make(const JobKey& key) try {
    const auto contexts = std::make_shared<Contexts>();
    SSL_CTX* const client = contexts->client.native_handle();
    SSL_CTX* const server = contexts->server.native_handle();
    JobKey::Bytes derived;
    if (!derive(key.bytes(), derived)) return cannot_set_up();
    for (SSL_CTX* const context : {client, server})
        if (!restrict(context) || !set_key(context, derived)) return cannot_set_up();
    // A client trusts no certificate, so that a server without the key cannot get away with one.
    SSL_CTX_set_verify(client, SSL_VERIFY_PEER, nullptr);
    SSL_CTX_set_psk_use_session_callback(client, use_key);
    SSL_CTX_set_psk_find_session_callback(server, find_key);
    contexts->origin = key.origin();
    return Credentials(contexts);
} catch (const boost::system::system_error& error) {  // of the contexts: the configuration of OpenSSL forbids them
    return cannot_set_up(error.code().message());
}

ssl::context& Credentials::for_client() const { return contexts_->client; }
ssl::context& Credentials::for_server() const { return contexts_->server; }
const std::string& Credentials::origin() const { return contexts_->origin; }

Result<Security> make_security(const std::optional<JobKey>& key, bool insecure) {
    Security security{std::nullopt, insecure};
    if (!key) return security;
    auto made = Credentials::make(*key);
    if (!made) return made.error();
    security.credentials = std::move(*made);
    return security;
}

bool shares_key(SSL* connection) {
    return SSL_session_reused(connection) == 1;  // as OpenSSL calls it
}

Error tls_error_of_client(const boost::system::error_code& error, const Credentials& credentials) {
    switch (error.category() == boost::asio::error::get_ssl_category() ? reason_of(error) : 0) {
        case SSL_R_TLSV1_ALERT_INSUFFICIENT_SECURITY:
            return {Errc::kUntrusted,
                    "uses no TLS: it was started with --insecure, or serves loopback alone and a proxy or tunnel leads "
                    "there. Pass --insecure to all nodes of the job or to none, and name the daemon's own host."};
        case SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER:  // the daemon's answer to a proof by another key
            return {
                Errc::kUntrusted,
                fmt::format("has another job key than this node, whose key is from {}: it is another user's, or "
                            "the two hosts have different keys. Give all nodes one key: the same ~/.ddprun/job-key, "
                            "{} or {}.",
                            credentials.origin(), kJobKeyVariable, kJobKeyFileVariable)};
        default: return {Errc::kRefused, fmt::format("TLS: {}", error.message())};
    }
}

Error tls_error_of_server(const boost::system::error_code& error) {
    if (error.category() == boost::asio::error::get_ssl_category() && reason_of(error) == SSL_R_BINDER_DOES_NOT_VERIFY)
        return {Errc::kUntrusted,
                fmt::format("it has another job key; all nodes need the same ~/.ddprun/job-key, {} or {}",
                            kJobKeyVariable, kJobKeyFileVariable)};
    return {Errc::kMalformed, fmt::format("its TLS handshake is not an agent's: {}", error.message())};
}

}  // namespace ddprun::transport
