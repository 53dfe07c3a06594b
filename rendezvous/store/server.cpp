#include "rendezvous/store/server.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <exception>
#include <limits>
#include <string>
#include <utility>

#include "common/endpoint.hpp"
#include "rendezvous/store/session.hpp"

namespace ddprun::store {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using namespace std::chrono_literals;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
/// The kernel cuts it down to the system's largest backlog; all ranks of a job connect at once.
constexpr int kBacklog = std::numeric_limits<int>::max();
/// After an accept that failed, typically for want of descriptors.
constexpr auto kAcceptPause = 100ms;

std::string to_text(const tcp::endpoint& endpoint) {
    return to_string(Endpoint{endpoint.address().to_string(), endpoint.port()});
}

/// Logs the exception that ended a coroutine; there is nobody to pass it on to.
void log_exception(const Hub& hub, const std::exception_ptr& exception) {
    if (!exception) return;
    try {
        std::rethrow_exception(exception);
    } catch (const std::exception& e) {
        spdlog::error("store {}: a connection was dropped: {}", hub.name, e.what());
    }
}

/// The listening socket and its loop. Kept alive by that loop, so that a server can go while an accept is pending.
class Listener : public std::enable_shared_from_this<Listener> {
public:
    Listener(tcp::acceptor acceptor, const Options& options)
        : acceptor_(std::move(acceptor)),
          pause_(acceptor_.get_executor()),
          port_(acceptor_.local_endpoint().port()),
          hub_(std::make_shared<Hub>(options, to_text(acceptor_.local_endpoint()))) {}

    void start() {
        asio::co_spawn(
            acceptor_.get_executor(), [self = shared_from_this()] { return self->accept(); },
            [hub = hub_](const std::exception_ptr& exception) { log_exception(*hub, exception); });
    }

    void close() {
        boost::system::error_code ignored;  // the listener is gone either way
        acceptor_.close(ignored);
        pause_.cancel();
        for (const auto& [id, session] : hub_->sessions) session->close();
    }

    [[nodiscard]] std::uint16_t port() const { return port_; }

private:
    asio::awaitable<void> accept() {
        int failures = 0;
        while (acceptor_.is_open()) {
            auto [error, socket] = co_await acceptor_.async_accept(kTuple);
            if (!error) {
                if (std::exchange(failures, 0) > 0) spdlog::info("store {}: accepts connections again", hub_->name);
                serve(std::move(socket));
                continue;
            }
            if (error == asio::error::operation_aborted || error == asio::error::connection_aborted) continue;
            // The connection stays in the backlog, so trying again at once would spin.
            if (failures++ == 0) {
                spdlog::error("store {}: cannot accept a connection: {}. Trying again every {} ms", hub_->name,
                              error.message(), kAcceptPause.count());
            }
            pause_.expires_after(kAcceptPause);
            co_await pause_.async_wait(kTuple);
        }
    }

    void serve(tcp::socket socket) {
        auto session = std::make_shared<Session>(hub_, std::move(socket));
        asio::co_spawn(
            acceptor_.get_executor(), [session] { return session->run(); },
            [hub = hub_](const std::exception_ptr& exception) { log_exception(*hub, exception); });
    }

    tcp::acceptor acceptor_;
    asio::steady_timer pause_;
    std::uint16_t port_;
    std::shared_ptr<Hub> hub_;
};

class TcpStoreServer final : public StoreServer {
public:
    explicit TcpStoreServer(std::shared_ptr<Listener> listener) : listener_(std::move(listener)) {}
    ~TcpStoreServer() override { listener_->close(); }
    std::uint16_t port() const override { return listener_->port(); }
    void close() override { listener_->close(); }

private:
    std::shared_ptr<Listener> listener_;
};

Error cannot_listen(const tcp::endpoint& endpoint, const boost::system::error_code& error) {
    const bool in_use = error == asio::error::address_in_use;
    return {in_use ? Errc::kInUse : Errc::kSystem,
            fmt::format("cannot listen on {}: {}. {}", to_text(endpoint), error.message(),
                        in_use ? "Choose another port, or 0 for a free one"
                               : "Is this an address of this host, and the port allowed?")};
}

}  // namespace

Result<std::unique_ptr<StoreServer>> StoreServer::listen(const asio::any_io_executor& executor,
                                                         const asio::ip::address& address, std::uint16_t port,
                                                         const Options& options) {
    const tcp::endpoint endpoint(address, port);
    tcp::acceptor acceptor(executor);
    boost::system::error_code error;
    acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error && address.is_v6()) acceptor.set_option(asio::ip::v6_only(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(kBacklog, error);
    if (error) return cannot_listen(endpoint, error);

    auto listener = std::make_shared<Listener>(std::move(acceptor), options);
    listener->start();
    return std::unique_ptr<StoreServer>(std::make_unique<TcpStoreServer>(std::move(listener)));
}

}  // namespace ddprun::store
