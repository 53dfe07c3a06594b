#pragma once
// WebSocketChannel: a Channel over any stream that Beast can frame: TcpStream, or TlsStream.
// Private to the transport: only websocket.cpp includes it, and with it Beast.

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/beast/core/bind_handler.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/field.hpp>
#include <boost/beast/websocket/stream.hpp>
#include <concepts>
#include <deque>
#include <optional>

#include "rendezvous/transport/channel.hpp"
#include "rendezvous/transport/completion.hpp"
#include "rendezvous/transport/socket.hpp"
#include "rendezvous/transport/tls_stream.hpp"
#include "rendezvous/transport/websocket.hpp"

namespace ddprun::transport {

/// A TCP socket as a type of its own, for which Beast finds the async_teardown() below.
class TcpStream : public boost::asio::ip::tcp::socket {
public:
    explicit TcpStream(boost::asio::ip::tcp::socket socket) : boost::asio::ip::tcp::socket(std::move(socket)) {}
};

/// Ends a connection for Beast after the close frames or a bad frame. Beast's own overload waits for the peer to close,
/// without a limit, and would let a bad peer block receive(). With TLS no close_notify is sent: WebSocket messages have
/// their lengths.
template <typename Stream, typename Handler>
requires std::same_as<Stream, TcpStream> || std::same_as<Stream, TlsStream>
void async_teardown(boost::beast::role_type, Stream& stream, Handler&& handler) {
    boost::system::error_code ignored;  // the stream counts as closed all the same
    boost::beast::get_lowest_layer(stream).close(ignored);
    boost::asio::post(stream.get_executor(),
                      boost::beast::bind_front_handler(std::forward<Handler>(handler), boost::system::error_code{}));
}

template <typename Stream>
class WebSocketChannel final : public Channel, public std::enable_shared_from_this<WebSocketChannel<Stream>> {
    using tcp = boost::asio::ip::tcp;
    using error_code = boost::system::error_code;
    static constexpr std::chrono::seconds kCloseTime{1};
    static constexpr std::size_t kReadBytes = 64u << 10;

public:
    /// Has no permessage-deflate: control messages are small, and strangers could attack a decompressor.
    using WebSocket = boost::beast::websocket::stream<Stream, false>;

    /// Makes a channel over a connected socket; `of_stream`: further arguments of the stream. Errors: kClosed when it
    /// is no longer connected.
    template <typename... Args>
    static Result<std::shared_ptr<WebSocketChannel>> make(tcp::socket socket, Args&... of_stream) {
        error_code ec;
        const auto local = socket.local_endpoint(ec);
        if (ec) return Error{Errc::kClosed, ec.message()};
        static_cast<void>(socket.remote_endpoint(ec));  // fails if the peer has gone already
        if (ec) return Error{Errc::kClosed, ec.message()};
        return std::shared_ptr<WebSocketChannel>(
            new WebSocketChannel(unwrapped(local.address()), std::move(socket), of_stream...));
    }

    WebSocket& websocket() { return websocket_; }
    tcp::socket& socket() { return boost::beast::get_lowest_layer(websocket_); }

    // The coroutines hold the channel themselves: one that was started may outlive the caller's reference.
    using Channel::receive;
    boost::asio::awaitable<Result<std::string>> receive(std::size_t max_bytes) override {
        return receive(this->shared_from_this(), max_bytes);
    }
    boost::asio::awaitable<void> close() override { return close(this->shared_from_this()); }

    void send(std::string message) override {
        if (failure_ || closing_) return;
        if (message.size() > kMaxMessageBytes) {
            fail({Errc::kLimit, fmt::format("a message to the peer longer than {} MiB", kMaxMessageBytes >> 20)});
            return;
        }
        queued_bytes_ += message.size();
        queue_.push_back(std::move(message));
        if (queued_bytes_ > kMaxQueuedBytes) {
            fail({Errc::kLimit,
                  fmt::format("the peer does not read: more than {} MiB wait for it", kMaxQueuedBytes >> 20)});
        } else if (queue_.size() == 1) {
            write_next();
        }
    }

    void abort() override { fail({Errc::kClosed, "the connection was closed"}); }
    void reset() override {
        error_code ignored;  // then it is closed in the ordinary way
        if (!failure_) socket().set_option(boost::asio::socket_base::linger(true, 0), ignored);
        abort();
    }
    boost::asio::ip::address local_address() const override { return local_; }

private:
    template <typename... Args>
    WebSocketChannel(boost::asio::ip::address local, tcp::socket socket, Args&... of_stream)
        : websocket_(std::move(socket), of_stream...),
          drained_(websocket_.get_executor(), TimePoint::max()),
          local_(local) {
        namespace ws = boost::beast::websocket;
        websocket_.text(true);
        websocket_.auto_fragment(false);
        // receive() checks the size: Beast would wait for the peer's close frame before it reports the limit.
        websocket_.read_message_max(0);
        websocket_.set_option(ws::stream_base::decorator(
            [](auto& request_or_response) { request_or_response.set(kChannelHeader, kChannelVersion); }));
    }

    static boost::asio::awaitable<Result<std::string>> receive(std::shared_ptr<WebSocketChannel> self,
                                                               std::size_t max_bytes) {
        if (self->failure_) co_return *self->failure_;
        boost::beast::flat_buffer buffer;
        do {
            // Memory is allocated for what may arrive, whatever length a frame announces.
            const std::size_t bytes = std::min(kReadBytes, max_bytes + 1 - buffer.size());
            const auto [ec, n] = co_await self->websocket_.async_read_some(buffer, bytes, kTuple);
            if (ec) self->fail(explain(ec));
            if (buffer.size() > max_bytes)
                self->fail({Errc::kLimit, fmt::format("a message longer than {} KiB", max_bytes >> 10)});
            if (self->failure_) co_return *self->failure_;
        } while (!self->websocket_.is_message_done());
        if (!self->websocket_.got_text()) {
            self->fail({Errc::kMalformed, "a binary message; only text is expected"});
            co_return *self->failure_;
        }
        co_return boost::beast::buffers_to_string(buffer.cdata());
    }

    static boost::asio::awaitable<void> close(std::shared_ptr<WebSocketChannel> self) {
        if (self->failure_ || std::exchange(self->closing_, true)) co_return;
        const Watchdog watchdog(self->socket(), Clock::now() + kCloseTime);
        while (!self->queue_.empty()) co_await self->drained_.async_wait(kTuple);
        // The close frame may get no answer. The watchdog bounds that wait; then the connection is closed in any case.
        if (!self->failure_) co_await self->websocket_.async_close(boost::beast::websocket::close_code::normal, kTuple);
        self->abort();
    }

    void write_next() {
        websocket_.async_write(boost::asio::buffer(queue_.front()),
                               [self = this->shared_from_this()](const error_code& ec, std::size_t) {
                                   self->queued_bytes_ -= self->queue_.front().size();
                                   self->queue_.pop_front();
                                   if (ec) self->fail(explain(ec));
                                   self->failure_ ? self->drop_queue() : self->write_on();
                               });
    }

    void write_on() {
        if (queue_.empty()) {
            drained_.cancel();
        } else {
            write_next();
        }
    }

    /// Drops the queued messages after a failure. Never called while the front is being written.
    void drop_queue() {
        queue_.clear();
        queued_bytes_ = 0;
        drained_.cancel();
    }

    /// Closes the channel. The reason of the first call counts. Pending operations complete with an error.
    void fail(Error reason) {
        if (failure_) return;
        failure_ = std::move(reason);
        error_code ignored;  // the socket counts as closed all the same
        socket().close(ignored);
    }

    static Error explain(const error_code& ec) {
        namespace ws = boost::beast::websocket;
        if (ec == ws::error::closed || ec == boost::asio::error::eof || ec == boost::asio::error::operation_aborted) {
            return {Errc::kClosed, "the connection was closed"};
        }
        if (ec.category() == ws::make_error_code(ws::error::closed).category()) {
            return {Errc::kMalformed, fmt::format("bad WebSocket framing: {}", ec.message())};
        }
        return {ec, fmt::format("the connection was lost: {}", ec.message())};
    }

    WebSocket websocket_;
    std::deque<std::string> queue_;  // the front is being written
    std::size_t queued_bytes_ = 0;
    boost::asio::steady_timer drained_;  // never expires; cancelled when the queue is empty
    bool closing_ = false;
    std::optional<Error> failure_;  // set once, with the socket closed
    boost::asio::ip::address local_;
};

/// Returns the channel for callers, after the handshake: dropping the last reference drops the connection, even while
/// an operation still holds the channel.
template <typename Stream>
std::shared_ptr<Channel> owned(std::shared_ptr<WebSocketChannel<Stream>> channel) {
    Channel* const raw = channel.get();
    return {raw, [channel = std::move(channel)](Channel*) { channel->abort(); }};
}

}  // namespace ddprun::transport
