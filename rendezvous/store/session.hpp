#pragma once
// Session: one connection of a store server. It reads, lets the engine serve, and writes; it decides nothing.
// Lives on the server's one thread, kept alive by its own coroutine.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "rendezvous/store/codec.hpp"
#include "rendezvous/store/engine.hpp"
#include "rendezvous/store/limits.hpp"

namespace ddprun::store {

class Session;

/// What all connections of one store share.
struct Hub {
    Hub(const Options& store_options, std::string address)
        : options(store_options), name(std::move(address)), engine(store_options.limits) {}

    Options options;
    std::string name;  ///< "10.0.0.7:41234", for the log
    Engine engine;
    std::unordered_map<ConnectionId, Session*> sessions;
    std::uint64_t accepted = 0;
    /// Where each read lands first: an idle connection needs no memory to read into.
    std::vector<char> scratch = std::vector<char>(std::size_t{64} << 10);
};

class Session {
public:
    Session(std::shared_ptr<Hub> hub, boost::asio::ip::tcp::socket socket);
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    /// Serves until the peer goes, breaks the protocol, or close() is called.
    boost::asio::awaitable<void> run();
    void close();

private:
    /// The request of another connection ended this one's wait.
    void stop_waiting();
    /// Takes in what has come. False: the stream is over.
    bool receive();
    /// Serves the requests that are complete, as long as the peer takes the replies. False: the connection is over.
    bool serve();
    /// Writes what the kernel takes now. False: the connection is over.
    bool flush();
    void log_refusal(const Error& why) const;

    std::shared_ptr<Hub> hub_;
    boost::asio::ip::tcp::socket socket_;
    ConnectionId id_;
    Decoder decoder_;
    std::string output_;
    std::size_t flushed_bytes_ = 0;  ///< of output_
    bool more_to_serve_ = false;     ///< complete requests may wait in the decoder
};

}  // namespace ddprun::store
