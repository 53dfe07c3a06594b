#include "rendezvous/store/session.hpp"

#include <spdlog/spdlog.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <string_view>
#include <utility>

#include "common/endpoint.hpp"
#include "rendezvous/store/wire.hpp"

namespace ddprun::store {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
/// No further request of a connection is served while it holds this much unsent output. So its output is bounded by
/// this, one reply, and the one byte that ends a wait.
constexpr std::size_t kOutputBytes = std::size_t{256} << 10;
/// A connection keeps at most this much memory for output when all is sent.
constexpr std::size_t kKeptBytes = std::size_t{16} << 10;

}  // namespace

Session::Session(std::shared_ptr<Hub> hub, tcp::socket socket)
    : hub_(std::move(hub)), socket_(std::move(socket)), id_{++hub_->accepted}, decoder_(hub_->options) {
    hub_->sessions.emplace(id_, this);
}

Session::~Session() {
    hub_->engine.forget(id_);
    hub_->sessions.erase(id_);
}

asio::awaitable<void> Session::run() {
    boost::system::error_code failed;
    socket_.non_blocking(true, failed);
    if (failed) co_return;
    // Without this a reply could wait for the acknowledgement of the one before it. Failing costs only speed.
    socket_.set_option(tcp::no_delay(true), failed);

    while (serve()) {
        // A peer that does not take its replies is not read from either: this bounds what is held for it.
        const bool sending = !output_.empty() || more_to_serve_;
        const auto [error] =
            co_await socket_.async_wait(sending ? tcp::socket::wait_write : tcp::socket::wait_read, kTuple);
        if (error == asio::error::operation_aborted) continue;  // stop_waiting() left a byte to send, or close()
        if (error || (!sending && !receive())) break;
    }
    close();
}

void Session::close() {
    boost::system::error_code ignored;  // the socket is gone either way
    socket_.close(ignored);
}

bool Session::receive() {
    boost::system::error_code error;
    const std::size_t received = socket_.read_some(asio::buffer(hub_->scratch), error);
    if (error) return error == asio::error::would_block || error == asio::error::interrupted;
    decoder_.feed(std::string_view(hub_->scratch.data(), received));
    return true;
}

bool Session::serve() {
    if (!socket_.is_open()) return false;
    more_to_serve_ = false;
    while (output_.size() - flushed_bytes_ < kOutputBytes) {
        const auto request = decoder_.next();
        if (!request) {
            log_refusal(request.error());
            flush();  // the replies to what came before; whatever the kernel does not take now is lost
            return false;
        }
        if (!*request) return flush();
        const auto released = hub_->engine.apply(id_, **request, output_);
        if (!released) {
            log_refusal(released.error());
            flush();
            return false;
        }
        for (const ConnectionId other : *released) hub_->sessions.at(other)->stop_waiting();
    }
    more_to_serve_ = true;
    return flush();
}

void Session::stop_waiting() {
    output_ += wire::kStopWaiting;
    if (!flush()) return close();
    // The kernel is full of earlier replies: wake the coroutine, which waits for input, so that it waits for room
    // instead.
    if (!output_.empty()) socket_.cancel();
}

bool Session::flush() {
    while (flushed_bytes_ < output_.size()) {
        boost::system::error_code error;
        const auto rest = asio::buffer(output_) + flushed_bytes_;
        flushed_bytes_ += socket_.write_some(asio::const_buffer(rest), error);
        if (error == asio::error::would_block) return true;
        if (error && error != asio::error::interrupted) return false;
    }
    flushed_bytes_ = 0;
    output_.clear();
    if (output_.capacity() > kKeptBytes) output_ = {};
    return true;
}

void Session::log_refusal(const Error& why) const {
    boost::system::error_code unknown;  // the peer may be gone already: then its address is 0.0.0.0
    const auto peer = socket_.remote_endpoint(unknown);
    spdlog::warn("store {}: closed the connection from {}: {}", hub_->name,
                 to_string(Endpoint{peer.address().to_string(), peer.port()}), why.message);
}

}  // namespace ddprun::store
