#pragma once
// For the socket tests: a store server on a thread of its own, and a peer that sends raw bytes to it.

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "common/clock.hpp"
#include "common/endpoint.hpp"
#include "common/system/unique_fd.hpp"
#include "rendezvous/store/server/server.hpp"

namespace ddprun::store::test {

/// Far longer than anything here takes; a test that reaches it fails.
inline TimePoint soon() { return Clock::now() + std::chrono::seconds(20); }

/// Its destructor closes the server and waits until its io_context has no more work.
class ServerThread {
public:
    explicit ServerThread(const std::string& address = "127.0.0.1", std::uint16_t port = 0,
                          const Options& options = {});
    ~ServerThread();
    ServerThread(const ServerThread&) = delete;
    ServerThread& operator=(const ServerThread&) = delete;

    [[nodiscard]] const Endpoint& endpoint() const { return endpoint_; }
    /// Ends listener and connections, as the end of a generation does.
    void close();

private:
    boost::asio::io_context io_;
    std::unique_ptr<StoreServer> server_;
    Endpoint endpoint_;
    std::thread thread_;
};

class RawPeer {
public:
    explicit RawPeer(const Endpoint& endpoint);

    void send(std::string_view bytes);
    /// Sends as much as the socket takes now. Returns how much that was.
    std::size_t send_some(std::string_view bytes);
    /// Returns the bytes that have arrived already.
    [[nodiscard]] std::string receive_now();
    /// Receives exactly so many bytes; fewer when the connection ended, or at soon().
    [[nodiscard]] std::string receive(std::size_t size);
    [[nodiscard]] std::string ask(std::string_view bytes, std::size_t reply_size);
    /// Waits until bytes have arrived and receives them with one system call.
    [[nodiscard]] std::string receive_once();
    /// Sends `bytes` over and over. Returns whether the server stopped receiving for `timeout`.
    [[nodiscard]] bool stops_receiving(std::string_view bytes, std::size_t times, std::chrono::milliseconds timeout);
    /// Returns whether the other side ends the connection.
    [[nodiscard]] bool is_closed();
    /// Returns whether no byte has arrived so far.
    [[nodiscard]] bool is_silent();

private:
    UniqueFd socket_;
};

}  // namespace ddprun::store::test
