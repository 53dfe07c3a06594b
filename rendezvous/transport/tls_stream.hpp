#pragma once
// TlsStream: TLS over a TCP socket, as a stream for Beast. OpenSSL reads and writes the socket itself, so that an idle
// connection has no buffer; Asio's stream holds 68 KiB for each (docs/design/027-tls.md). Used on the io_context's one
// thread, with one operation for reading and one for writing at a time. Private to the transport.

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/compose.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream_base.hpp>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

namespace ddprun::transport {

class TlsStream {
    using tcp = boost::asio::ip::tcp;
    using error_code = boost::system::error_code;

public:
    using next_layer_type = tcp::socket;
    using executor_type = tcp::socket::executor_type;

    /// `context` is copied by its handle. Throws boost::system::system_error if OpenSSL has no memory.
    TlsStream(tcp::socket socket, boost::asio::ssl::context& context);
    TlsStream(const TlsStream&) = delete;  // OpenSSL has its address
    TlsStream& operator=(const TlsStream&) = delete;

    [[nodiscard]] executor_type get_executor() { return socket_.get_executor(); }
    [[nodiscard]] tcp::socket& next_layer() { return socket_; }
    [[nodiscard]] const tcp::socket& next_layer() const { return socket_; }
    [[nodiscard]] SSL* native_handle() { return connection_.get(); }

    /// Errors of all operations: those of the socket (eof, also without a close_notify; operation_aborted once it is
    /// closed), or OpenSSL's in Asio's category.
    template <typename Token>
    auto async_handshake(boost::asio::ssl::stream_base::handshake_type role, Token&& token) {
        return start<void(error_code)>([this, role] { return try_handshake(role); }, std::forward<Token>(token));
    }
    template <typename Buffers, typename Token>
    auto async_read_some(const Buffers& buffers, Token&& token) {
        const boost::asio::mutable_buffer first = first_of<boost::asio::mutable_buffer>(buffers);
        return start<void(error_code, std::size_t)>([this, first] { return try_read(first); },
                                                    std::forward<Token>(token));
    }
    /// Writes up to one record. The buffers are put together, so that a frame's header has no record of its own.
    template <typename Buffers, typename Token>
    auto async_write_some(const Buffers& buffers, Token&& token) {
        return start<void(error_code, std::size_t)>(
            [this, buffers] {
                std::array<std::byte, kMaxRecordBytes> record;
                const std::size_t bytes = boost::asio::buffer_copy(boost::asio::buffer(record), buffers);
                return try_write(boost::asio::buffer(record.data(), bytes));
            },
            std::forward<Token>(token));
    }

private:
    static constexpr std::size_t kMaxRecordBytes = 1u << 14;

    /// The result of a try of an operation.
    struct Attempt {
        std::optional<tcp::socket::wait_type> wait;  ///< set: OpenSSL can go on when the socket is ready for this
        error_code error;
        std::size_t bytes = 0;
    };
    struct Free {
        void operator()(SSL* connection) const;
    };

    [[nodiscard]] Attempt try_handshake(boost::asio::ssl::stream_base::handshake_type role);
    [[nodiscard]] Attempt try_read(boost::asio::mutable_buffer buffer);
    [[nodiscard]] Attempt try_write(boost::asio::const_buffer buffer);
    /// Returns the result of an OpenSSL function that returned `result`.
    [[nodiscard]] Attempt attempt_of(int result, std::size_t bytes);

    // The functions of OpenSSL's source and sink.
    static const BIO_METHOD* socket_methods();
    static int read_socket(BIO* bio, char* data, int size);
    static int write_socket(BIO* bio, const char* data, int size);
    static long control_socket(BIO* bio, int command, long, void*);

    template <typename Buffer, typename Buffers>
    static Buffer first_of(const Buffers& buffers) {
        const auto end = boost::asio::buffer_sequence_end(buffers);
        for (auto at = boost::asio::buffer_sequence_begin(buffers); at != end; ++at)
            if (Buffer(*at).size() > 0) return *at;
        return {};
    }

    /// Tries an operation until it is done, and completes it; never within the function that starts it.
    template <typename Signature, typename Try>
    struct Operation {
        TlsStream& stream;
        Try attempt;
        Attempt result{};
        enum class State { kStarting, kWaiting, kDone } state = State::kStarting;

        template <typename Self>
        void operator()(Self& self, error_code waited = {}) {
            if (state != State::kDone) {
                result = waited ? Attempt{{}, waited} : attempt();
                const bool starts = std::exchange(state, State::kDone) == State::kStarting;
                if (result.wait) {
                    state = State::kWaiting;
                    return stream.socket_.async_wait(*result.wait, std::move(self));
                }
                if (starts) return boost::asio::post(stream.get_executor(), std::move(self));
            }
            if constexpr (std::is_same_v<Signature, void(error_code)>)
                self.complete(result.error);
            else
                self.complete(result.error, result.bytes);
        }
    };

    template <typename Signature, typename Try, typename Token>
    auto start(Try attempt, Token&& token) {
        return boost::asio::async_compose<Token, Signature>(Operation<Signature, Try>{*this, std::move(attempt)}, token,
                                                            socket_);
    }

    tcp::socket socket_;
    error_code socket_error_;       ///< of the last read or write, other than that it would block
    bool socket_is_empty_ = false;  ///< the last read took all that there was
    std::unique_ptr<SSL, Free> connection_;
};

}  // namespace ddprun::transport
