#pragma once
// StoreServer: serves one TCPStore on one listening port, on an io_context beside other parts; for one generation of
// workers, or for `ddprund --store`. EpollServer does the work. Used on the io_context's one thread and destroyed
// before that io_context; closing or destroying it ends every connection.

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "common/error.hpp"
#include "common/system/unique_fd.hpp"
#include "rendezvous/store/codec/limits.hpp"
#include "rendezvous/store/server/statistics.hpp"

namespace ddprun::store {

class StoreServer {
public:
    /// Listens on `address`:`port` (0: a free port) and on nothing else; `::` is every address, IPv4 too.
    /// Errors: kInUse or kSystem with the address.
    [[nodiscard]] static Result<std::unique_ptr<StoreServer>> listen(const boost::asio::any_io_executor& executor,
                                                                     const boost::asio::ip::address& address,
                                                                     std::uint16_t port, const Options& options = {});

    ~StoreServer();
    StoreServer(const StoreServer&) = delete;
    StoreServer& operator=(const StoreServer&) = delete;
    /// From now on closes new connections from other hosts, unless `admits` returns true for their numeric address.
    /// Needs Options::own_user_only.
    void admit_hosts(std::function<bool(const std::string& address)> admits);
    /// From now on gives new connections that admit_hosts() accepts by their address to `screens`, which may have them
    /// adopted later.
    void screen_clients(std::function<void(UniqueFd socket, const std::string& address)> screens);
    [[nodiscard]] std::uint16_t port() const;
    [[nodiscard]] Statistics statistics() const;
    /// Serves a connection that another listener has accepted, from its first byte; its end is this store's business.
    void adopt(UniqueFd socket);
    /// Returns whether a client is connected from the address of this socket's peer.
    [[nodiscard]] bool has_client_beside(int socket) const;
    /// Serves until `io`, that of listen(), is stopped. Called in place of io.run() where `io` only waits for signals,
    /// so that a request does not take the detour over `io`.
    void run(boost::asio::io_context& io);
    /// Ends the listener and all connections. A connection is never ended for being idle.
    void close();

private:
    class Pump;
    explicit StoreServer(std::shared_ptr<Pump> pump) : pump_(std::move(pump)) {}

    std::shared_ptr<Pump> pump_;
};

}  // namespace ddprun::store
