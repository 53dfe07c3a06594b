#include "rendezvous/store/server/epoll_server.hpp"

#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace ddprun::store {
namespace {

using namespace std::chrono_literals;

/// The time for which the pages of a freed large value are kept for the next one: an idle store is small.
constexpr auto kSpareStays = 1s;
/// The number of waits after which serve_until_signal() looks for a signal: a few milliseconds under load.
constexpr int kWaitsWithoutSignals = 64;

/// Returns `options` with a random seed in place of none, and with limits that the types behind them can hold.
Options completed(Options options) {
    while (options.hash_seed.first == 0 && options.hash_seed.second == 0) {
        HashSeed seed;
        if (::getrandom(&seed, sizeof seed, 0) == sizeof seed) options.hash_seed = seed;
    }
    Limits& limits = options.limits;
    limits.key_bytes = std::min(limits.key_bytes, std::size_t{1} << 30);
    limits.connections = std::min(limits.connections, Connections::kMax);
    limits.stalled_request_seconds = std::min(limits.stalled_request_seconds, std::size_t{1} << 30);
    return options;
}

}  // namespace

Result<std::unique_ptr<EpollServer>> EpollServer::listen(const std::string& address, std::uint16_t port,
                                                         const Options& options, Now now) {
    auto listener = Listener::open(address, port);
    if (!listener) return listener.error();
    UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
    epoll_event event{EPOLLIN, {.u64 = 0}};
    if (!epoll || ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, listener->fd(), &event) != 0) {
        return system_error("cannot watch the connections of a store", errno);
    }
    return std::make_unique<EpollServer>(std::move(*listener), std::move(epoll), options, std::move(now));
}

EpollServer::EpollServer(Listener listener, UniqueFd epoll, const Options& options, Now now)
    : port_(listener.port()),
      context_{completed(options), std::move(now), listener.name(), std::move(epoll)},
      admission_(std::move(listener), context_),
      service_(context_, admission_) {
    if (options.own_user_only) context_.owners.emplace();
}

EpollServer::~EpollServer() { close(); }

void EpollServer::close() {
    admission_.close();
    service_.end_all();
}

bool EpollServer::has_client_beside(int socket) const {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    return ::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
           context_.connections.count_from(address_of(peer)) > 0;
}

void EpollServer::serve_until_signal(const std::function<bool()>& go_on) {
    sigset_t before;
    sigset_t blocked;
    ::sigfillset(&blocked);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) ::sigdelset(&blocked, fault);
    ::pthread_sigmask(SIG_SETMASK, &blocked, &before);
    // Signals that arrived before they were blocked come first.
    interrupted_ = true;
    for (int waits = 0; (!interrupted_ || go_on()) && !admission_.is_closed();) {
        serve(-1ns, &before);
        if (++waits < kWaitsWithoutSignals) continue;
        // A wait that finds a connection to serve returns without a look at the signals. Under load every wait does.
        waits = 0;
        interrupted_ = true;
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
        ::pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

std::size_t EpollServer::serve(std::chrono::nanoseconds timeout, const sigset_t* signals) {
    const std::size_t count = wait(timeout, signals);
    const std::size_t ready = service_.begin_round(count);
    for (std::size_t i = 0; i < count; ++i) {
        const epoll_event& event = events_[i];
        if (event.data.u64 == 0) {
            admission_.accept();
        } else if (Connection* const connection = context_.connections.find(ConnectionId{event.data.u64})) {
            service_.serve(*connection, event.events);
        }
    }
    service_.serve_ready(ready);
    do_due_work();
    return count + ready;
}

void EpollServer::do_due_work() {
    watch_spare();
    const auto due = deadline();
    if (!due) return;
    const TimePoint now = context_.now();
    if (now < *due) return;
    admission_.try_again(now);
    service_.end_stalled(now);
    if (now >= drop_spare_at_) context_.block_memory.spare.drop();
}

std::size_t EpollServer::wait(std::chrono::nanoseconds timeout, const sigset_t* signals) {
    if (has_ready()) timeout = 0ns;
    if (const auto due = deadline(); due && timeout != 0ns) {
        const auto left = std::max<std::chrono::nanoseconds>(*due - context_.now(), 0ns);
        timeout = timeout < 0ns ? left : std::min(timeout, left);
    }
    const auto whole = std::min<std::chrono::milliseconds>(std::chrono::ceil<std::chrono::milliseconds>(timeout), 60s);
    const int count = ::epoll_pwait(context_.epoll.get(), events_.data(), static_cast<int>(events_.size()),
                                    timeout < 0ns ? -1 : static_cast<int>(whole.count()), signals);
    interrupted_ = count < 0;  // by EINTR, the only way in which it can fail
    return count > 0 ? static_cast<std::size_t>(count) : 0;
}

std::optional<TimePoint> EpollServer::deadline() const {
    std::optional<TimePoint> due = admission_.deadline();
    const auto no_later_than = [&](TimePoint time) { due = due ? std::min(*due, time) : time; };
    if (const auto stalled = service_.deadline()) no_later_than(*stalled);
    if (!context_.block_memory.spare.empty()) no_later_than(drop_spare_at_);
    return due;
}

void EpollServer::watch_spare() {
    const std::uint64_t kept = context_.block_memory.spare.times_kept();
    if (kept == std::exchange(spare_seen_, kept)) return;
    drop_spare_at_ = context_.now() + kSpareStays;
}

Statistics EpollServer::statistics() const {
    Statistics now = context_.statistics;
    now.connections = context_.connections.size();
    now.keys = service_.engine().key_count();
    now.store_bytes = service_.engine().bytes();
    now.waiters = service_.engine().waiter_count();
    now.buffer_bytes = service_.buffer_bytes();
    return now;
}

}  // namespace ddprun::store
