#include "rendezvous/daemon/stores.hpp"

#include <utility>

namespace ddprun::daemon {

GenerationStores::GenerationStores(boost::asio::any_io_executor executor, boost::asio::ip::address address)
    : executor_(std::move(executor)), address_(std::move(address)) {}

Result<int> GenerationStores::open(Generation generation) {
    auto store = store::StoreServer::listen(executor_, address_, 0);
    if (!store) return store.error();
    const int port = (*store)->port();
    stores_[generation] = std::move(*store);
    return port;
}

}  // namespace ddprun::daemon
