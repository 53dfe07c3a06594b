#include "rendezvous/transport/tls_stream.hpp"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <boost/asio/error.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/system/system_error.hpp>
#include <cerrno>

namespace ddprun::transport {

namespace asio = boost::asio;

namespace {

boost::system::error_code oldest_ssl_error() {
    return {static_cast<int>(ERR_get_error()), asio::error::get_ssl_category()};
}

}  // namespace

void TlsStream::Free::operator()(SSL* connection) const { SSL_free(connection); }

TlsStream::TlsStream(tcp::socket socket, asio::ssl::context& context)
    : socket_(std::move(socket)), connection_(SSL_new(context.native_handle())) {
    BIO* const bio = connection_ ? BIO_new(socket_methods()) : nullptr;
    if (bio == nullptr) throw boost::system::system_error(oldest_ssl_error());
    BIO_set_data(bio, this);
    BIO_set_init(bio, 1);
    SSL_set_bio(connection_.get(), bio, bio);
}

TlsStream::Attempt TlsStream::try_handshake(asio::ssl::stream_base::handshake_type role) {
    ERR_clear_error();
    SSL* const connection = connection_.get();
    return attempt_of(role == asio::ssl::stream_base::client ? SSL_connect(connection) : SSL_accept(connection), 0);
}

TlsStream::Attempt TlsStream::try_read(asio::mutable_buffer buffer) {
    if (buffer.size() == 0) return {};
    ERR_clear_error();
    std::size_t bytes = 0;
    const int result = SSL_read_ex(connection_.get(), buffer.data(), buffer.size(), &bytes);
    return attempt_of(result, bytes);
}

TlsStream::Attempt TlsStream::try_write(asio::const_buffer buffer) {
    if (buffer.size() == 0) return {};
    ERR_clear_error();
    std::size_t bytes = 0;
    const int result = SSL_write_ex(connection_.get(), buffer.data(), buffer.size(), &bytes);
    return attempt_of(result, bytes);
}

TlsStream::Attempt TlsStream::attempt_of(int result, std::size_t bytes) {
    if (result == 1) return {.wait = {}, .error = {}, .bytes = bytes};
    switch (SSL_get_error(connection_.get(), result)) {
        case SSL_ERROR_WANT_READ: return {.wait = tcp::socket::wait_read, .error = {}};
        case SSL_ERROR_WANT_WRITE: return {.wait = tcp::socket::wait_write, .error = {}};
        case SSL_ERROR_SSL: return {.wait = {}, .error = oldest_ssl_error()};
        case SSL_ERROR_ZERO_RETURN: return {.wait = {}, .error = asio::error::eof};
        default: return {.wait = {}, .error = socket_error_ ? socket_error_ : asio::error::eof};
    }
}

// ---- OpenSSL's source and sink. Its own for sockets raises SIGPIPE.

const BIO_METHOD* TlsStream::socket_methods() {
    static BIO_METHOD* const methods = [] {
        BIO_METHOD* const made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket of a TlsStream");
        if (made == nullptr) throw boost::system::system_error(oldest_ssl_error());
        BIO_meth_set_read(made, read_socket);
        BIO_meth_set_write(made, write_socket);
        BIO_meth_set_ctrl(made, control_socket);
        return made;
    }();
    return methods;
}

int TlsStream::read_socket(BIO* bio, char* data, int size) {
    auto& stream = *static_cast<TlsStream*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    // After a read that took all, a second one would only report that. The wait that follows sees later bytes.
    ssize_t bytes = -1;
    errno = EAGAIN;
    if (!std::exchange(stream.socket_is_empty_, false))
        bytes = ::recv(stream.socket_.native_handle(), data, static_cast<std::size_t>(size), MSG_DONTWAIT);
    stream.socket_is_empty_ = bytes > 0 && bytes < size;
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) {
        BIO_set_retry_read(bio);
    } else if (bytes <= 0) {
        stream.socket_error_ =
            bytes == 0 ? error_code(asio::error::eof) : error_code(errno, asio::error::get_system_category());
    }
    return static_cast<int>(bytes);
}

int TlsStream::write_socket(BIO* bio, const char* data, int size) {
    auto& stream = *static_cast<TlsStream*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    const ssize_t bytes =
        ::send(stream.socket_.native_handle(), data, static_cast<std::size_t>(size), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) {
        BIO_set_retry_write(bio);
    } else if (bytes < 0) {
        stream.socket_error_ = error_code(errno, asio::error::get_system_category());
    }
    return static_cast<int>(bytes);
}

long TlsStream::control_socket(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

}  // namespace ddprun::transport
