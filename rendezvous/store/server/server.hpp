#pragma once
// StoreServer: one TCPStore on one listening port, for one generation of workers, beside other things on an io_context.
// EpollServer does the work. Lives on the io_context's one thread and goes before that io_context does; closing or
// destroying it ends every connection.

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>

#include <cstdint>
#include <memory>

#include "common/error.hpp"
#include "rendezvous/store/limits.hpp"
#include "rendezvous/store/statistics.hpp"

namespace ddprun::store {

class StoreServer {
public:
    /// Listens on `address`:`port` (0: a free port) and on nothing else; `::` is every address, IPv4 too.
    /// Errors: kInUse or kSystem with the address.
    [[nodiscard]] static Result<std::unique_ptr<StoreServer>> listen(const boost::asio::any_io_executor& executor,
                                                                     const boost::asio::ip::address& address,
                                                                     std::uint16_t port, const Options& options = {});

    virtual ~StoreServer() = default;
    [[nodiscard]] virtual std::uint16_t port() const = 0;
    [[nodiscard]] virtual Statistics statistics() const = 0;
    /// In place of io.run() where `io`, the listen()'s, has nothing else to do but to wait for signals: serves until it
    /// is stopped, faster by the detour over `io` that each request would take.
    virtual void run(boost::asio::io_context& io) = 0;
    /// Ends the listener and all connections. A connection is never ended for being idle.
    virtual void close() = 0;
};

}  // namespace ddprun::store
