#pragma once
// EpollServer: serves one TCPStore on one listening port, with an epoll set of its own: one recv and one send for a
// request. It waits and schedules; Admission accepts, RequestService serves, codec.hpp and engine.hpp interpret the
// bytes. One thread. docs/design/006-store-server.md says why.

#include <sys/epoll.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/clock.hpp"
#include "common/error.hpp"
#include "common/system/unique_fd.hpp"
#include "rendezvous/store/codec/limits.hpp"
#include "rendezvous/store/server/admission.hpp"
#include "rendezvous/store/server/listener.hpp"
#include "rendezvous/store/server/request_service.hpp"
#include "rendezvous/store/server/server_context.hpp"
#include "rendezvous/store/server/statistics.hpp"

namespace ddprun::store {

class EpollServer {
public:
    using Now = std::function<TimePoint()>;

    /// Listens on the numeric `address` and on nothing else. Errors: kInUse or kSystem with the address.
    [[nodiscard]] static Result<std::unique_ptr<EpollServer>> listen(const std::string& address, std::uint16_t port,
                                                                     const Options& options, Now now = &Clock::now);
    EpollServer(Listener listener, UniqueFd epoll, const Options& options, Now now);
    ~EpollServer();
    EpollServer(const EpollServer&) = delete;
    EpollServer& operator=(const EpollServer&) = delete;

    [[nodiscard]] std::uint16_t port() const { return port_; }
    /// As StoreServer::admit_hosts().
    void admit_hosts(AdmitsHost admits) { context_.admits_host = std::move(admits); }
    /// As StoreServer::screen_clients().
    void screen_clients(ScreensClient screens) { context_.screens_client = std::move(screens); }
    /// Serves a connection that another listener has accepted, from its first byte.
    void adopt(UniqueFd socket) { admission_.adopt(std::move(socket)); }
    /// Returns whether a client is connected from the address of this socket's peer.
    [[nodiscard]] bool has_client_beside(int socket) const;
    /// Becomes readable when there is something to serve.
    [[nodiscard]] int poll_fd() const { return context_.epoll.get(); }
    /// Waits up to `timeout` (negative: without a limit) and serves one slice of each connection that is ready. Returns
    /// the number of those. After 0, and unless has_ready(), poll_fd() becomes readable when a connection is ready.
    std::size_t serve(std::chrono::nanoseconds timeout) { return serve(timeout, nullptr); }
    /// Returns whether a connection is to be served although poll_fd() may not be readable.
    [[nodiscard]] bool has_ready() const { return service_.has_ready(); }
    /// Serves without returning in between, which costs least. Signals are blocked meanwhile, except while it waits;
    /// after one it calls `go_on` and returns if that is false.
    void serve_until_signal(const std::function<bool()>& go_on);
    /// Returns when do_due_work() is to be called, unless serve() is, which does it as well.
    [[nodiscard]] std::optional<TimePoint> deadline() const;
    /// Does what has become due by time. Serves no connection.
    void do_due_work();
    /// Ends the listener and all connections.
    void close();
    [[nodiscard]] Statistics statistics() const;

private:
    /// `signals`: the signal mask while it waits; null: the mask of the thread.
    std::size_t serve(std::chrono::nanoseconds timeout, const sigset_t* signals);
    [[nodiscard]] std::size_t wait(std::chrono::nanoseconds timeout, const sigset_t* signals);
    /// If pages of a freed value were kept since the last call, sets the time at which they are given back.
    void watch_spare();

    std::uint16_t port_;
    ServerContext context_;
    Admission admission_;
    RequestService service_;
    std::array<epoll_event, 128> events_;
    bool interrupted_ = false;      ///< the last wait was, by a signal
    std::uint64_t spare_seen_ = 0;  ///< its times_kept()
    TimePoint drop_spare_at_;
};

}  // namespace ddprun::store
