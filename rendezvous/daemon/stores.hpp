#pragma once
// GenerationStores: owns the store of each worker group, on a port of its own. The Daemon opens and closes them as the
// coordinator decides, on the io_context's one thread.

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/ip/address.hpp>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/error.hpp"
#include "common/ids.hpp"
#include "rendezvous/store/server/server.hpp"

namespace ddprun::daemon {

class GenerationStores {
public:
    /// The stores will listen on `address`.
    GenerationStores(boost::asio::any_io_executor executor, boost::asio::ip::address address)
        : executor_(std::move(executor)), address_(std::move(address)) {}

    /// Opens an empty store on a free port and returns the port. Of other hosts it serves those whose numeric address
    /// `admits` accepts; empty: all. `screens`: as of StoreServer::screen_clients(); empty: none are screened. Errors:
    /// those of StoreServer::listen.
    [[nodiscard]] Result<int> open(Generation generation, std::function<bool(const std::string&)> admits,
                                   std::function<void(UniqueFd, const std::string&)> screens = {}) {
        store::Options options;
        options.own_user_only = true;
        auto store = store::StoreServer::listen(executor_, address_, 0, options);
        if (!store) return store.error();
        if (admits) (*store)->admit_hosts(std::move(admits));
        if (screens) (*store)->screen_clients(std::move(screens));
        const int port = (*store)->port();
        stores_[generation] = std::move(*store);
        return port;
    }
    /// Returns the generation whose store is open, the newest if there are several.
    [[nodiscard]] std::optional<Generation> current() const {
        return stores_.empty() ? std::nullopt : std::optional(stores_.rbegin()->first);
    }
    /// Returns null when that generation's store is not open.
    [[nodiscard]] store::StoreServer* find(Generation generation) {
        const auto store = stores_.find(generation);
        return store == stores_.end() ? nullptr : store->second.get();
    }
    /// Closes that store and its connections, if it is open.
    void close(Generation generation) { stores_.erase(generation); }
    void close_all() { stores_.clear(); }

private:
    boost::asio::any_io_executor executor_;
    boost::asio::ip::address address_;
    std::map<Generation, std::unique_ptr<store::StoreServer>> stores_;
};

}  // namespace ddprun::daemon
