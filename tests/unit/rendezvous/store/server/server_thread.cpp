#include "tests/unit/rendezvous/store/server/server_thread.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <boost/asio/post.hpp>

#include <array>

#include "rendezvous/store/client/socket.hpp"

namespace ddprun::store::test {

ServerThread::ServerThread(const std::string& address, std::uint16_t port, const Options& options)
    : server_(StoreServer::listen(io_.get_executor(), boost::asio::ip::make_address(address), port, options).value()),
      endpoint_{address, server_->port()},
      thread_([this] { io_.run(); }) {}

ServerThread::~ServerThread() {
    close();
    thread_.join();  // run() returns when no accept, read or timer is pending: close() leaves nothing behind
}

void ServerThread::close() {
    boost::asio::post(io_, [this] { server_->close(); });
}

RawPeer::RawPeer(const Endpoint& endpoint) : socket_(connect_socket(endpoint, soon()).value()) {}

void RawPeer::send(std::string_view bytes) { send_all(socket_.get(), bytes, soon()).value(); }

std::size_t RawPeer::send_some(std::string_view bytes) {
    const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent > 0 ? static_cast<std::size_t>(sent) : 0;
}

std::string RawPeer::receive_now() {
    std::array<char, 4096> bytes{};
    const ssize_t received = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    return received > 0 ? std::string(bytes.data(), static_cast<std::size_t>(received)) : std::string{};
}

std::string RawPeer::receive(std::size_t size) {
    std::string bytes;
    char byte = 0;
    std::array<char, 65536> chunk{};
    while (bytes.size() < size) {
        // One byte with a deadline, then what is there already.
        if (!receive_all(socket_.get(), {&byte, 1}, soon())) break;
        bytes += byte;
        const ssize_t more = ::recv(socket_.get(), chunk.data(), std::min(chunk.size(), size - bytes.size()), 0);
        if (more > 0) bytes.append(chunk.data(), static_cast<std::size_t>(more));
    }
    return bytes;
}

std::string RawPeer::ask(std::string_view bytes, std::size_t reply_size) {
    send(bytes);
    return receive(reply_size);
}

std::string RawPeer::receive_once() {
    pollfd entry{socket_.get(), POLLIN, 0};
    ::poll(&entry, 1, 20000);
    std::array<char, 4096> bytes{};
    const ssize_t received = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
    return received > 0 ? std::string(bytes.data(), static_cast<std::size_t>(received)) : std::string{};
}

bool RawPeer::stops_receiving(std::string_view bytes, std::size_t times, std::chrono::milliseconds timeout) {
    while (times-- > 0) {
        const auto sent = send_all(socket_.get(), bytes, Clock::now() + timeout);
        if (!sent) return sent.error().code == Errc::kTimeout;
    }
    return false;
}

bool RawPeer::is_closed() {
    char byte = 0;
    const auto received = receive_all(socket_.get(), {&byte, 1}, soon());
    return !received && received.error().code == Errc::kClosed;
}

bool RawPeer::is_silent() {
    char byte = 0;
    return ::recv(socket_.get(), &byte, 1, MSG_PEEK) < 0 && errno == EAGAIN;
}

}  // namespace ddprun::store::test
