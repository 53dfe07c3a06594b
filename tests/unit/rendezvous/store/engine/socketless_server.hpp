#pragma once
// SocketlessServer: the work of the server between its system calls, without sockets. Connections are numbers, each
// opens at its first use; a test chooses the pieces that arrive and how much is sent when. The bytes that it feeds are
// freed afterwards, so that AddressSanitizer reports an access that is too late.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "rendezvous/store/codec/codec.hpp"
#include "rendezvous/store/codec/reply.hpp"
#include "rendezvous/store/engine/engine.hpp"

namespace ddprun::store::test {

class SocketlessServer {
public:
    explicit SocketlessServer(const Options& options)
        : options_(options), engine_(options_.limits, options_.hash_seed, &block_memory_) {}
    SocketlessServer(SocketlessServer&&) = delete;  // the decoders point to its options

    /// Takes bytes that arrive in one piece and serves at most so many requests. Not while more() says that some are
    /// left.
    void receive(std::uint64_t connection, std::string_view bytes, std::size_t max_requests);
    /// The same for the rest of a large value, or a part of it, which is written to its final memory. Returns how many
    /// of `bytes` it took: none when no such value has begun.
    [[nodiscard]] std::size_t receive_in_place(std::uint64_t connection, std::string_view bytes,
                                               std::size_t max_requests);
    /// Serves further requests that have arrived already.
    void serve(std::uint64_t connection, std::size_t max_requests);
    [[nodiscard]] bool more(std::uint64_t connection) { return peer(connection).more; }
    void close(std::uint64_t connection);
    [[nodiscard]] bool is_closed(std::uint64_t connection) { return peer(connection).closed; }

    [[nodiscard]] std::size_t unsent_bytes(std::uint64_t connection) { return peer(connection).output.size(); }
    /// Sends about so many bytes, in pieces as writev() would take them.
    [[nodiscard]] std::string send(std::uint64_t connection, std::size_t max_bytes);
    /// Forgets a closed one.
    void remove(std::uint64_t connection) { peers_.erase(connection); }

    /// Returns what is wrong; empty if nothing is.
    [[nodiscard]] const std::string& broken() const { return broken_; }
    [[nodiscard]] const Engine& engine() const { return engine_; }
    /// Return the memory of all blocks, and that of decoders and replies beside them.
    [[nodiscard]] std::size_t block_memory() const { return block_memory_.bytes; }
    [[nodiscard]] std::size_t buffer_memory() const;

private:
    struct Peer {
        Decoder decoder;
        Reply output;
        bool more = false;
        bool closed = false;
    };
    Peer& peer(std::uint64_t connection);
    /// Returns whether there was a request.
    bool serve_one(std::uint64_t connection, Peer& peer);

    Options options_;
    BlockMemory block_memory_;
    Engine engine_;
    std::map<std::uint64_t, Peer> peers_;
    std::string broken_;
};

}  // namespace ddprun::store::test
