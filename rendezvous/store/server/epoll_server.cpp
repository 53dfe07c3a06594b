#include "rendezvous/store/epoll_server.hpp"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace ddprun::store {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kScratchBytes = std::size_t{64} << 10;
/// So long the pages of a large value that went are kept for the next one: an idle store is small.
constexpr auto kSpareStays = 1s;
/// So often serve_until_signal() waits before it looks whether a signal came: a few milliseconds when it has much to
/// do.
constexpr int kWaitsWithoutSignals = 64;

/// A seed that nobody knows in place of none; limits that the types behind them can hold.
Options completed(Options options) {
    while (options.hash_seed.first == 0 && options.hash_seed.second == 0) {
        HashSeed seed;
        if (::getrandom(&seed, sizeof seed, 0) == sizeof seed) options.hash_seed = seed;
    }
    Limits& limits = options.limits;
    limits.key_bytes = std::min(limits.key_bytes, std::size_t{1} << 30);
    limits.connections = std::min(limits.connections, Connections::kMost);
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
    : options_(completed(options)),
      now_(std::move(now)),
      listener_(std::move(listener)),
      port_(listener_->port()),
      name_(listener_->name()),
      epoll_(std::move(epoll)),
      scratch_(kScratchBytes),
      engine_(options_.limits, options_.hash_seed, &block_memory_) {}

EpollServer::~EpollServer() { close(); }

void EpollServer::close() {
    listener_.reset();
    accepting_ = Accepting::kClosed;
    connections_.for_each([&](Connection& connection) { end(connection); });
    ready_.clear();
}

void EpollServer::serve_until_signal(const std::function<bool()>& go_on) {
    sigset_t before;
    sigset_t blocked;
    ::sigfillset(&blocked);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) ::sigdelset(&blocked, fault);
    ::pthread_sigmask(SIG_SETMASK, &blocked, &before);
    // First for those that came before they were blocked.
    interrupted_ = true;
    for (int waits = 0; (!interrupted_ || go_on()) && accepting_ != Accepting::kClosed;) {
        serve(-1ns, &before);
        if (++waits < kWaitsWithoutSignals) continue;
        // A wait that finds somebody to serve ends without a look at the signals. Under load every one does.
        waits = 0;
        interrupted_ = true;
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
        ::pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

std::size_t EpollServer::serve(std::chrono::nanoseconds patience, const sigset_t* signals) {
    const std::size_t count = wait(patience, signals);
    // Only those that are ready now: who has still more after this turn queues up behind the others.
    const std::size_t ready = ready_.size();
    turns_alone_ = count + ready > 1 ? 0 : turns_alone_ + 1;
    for (std::size_t i = 0; i < count; ++i) {
        const epoll_event& event = events_[i];
        if (event.data.u64 == 0) {
            accept();
        } else if (Connection* const connection = connections_.find(ConnectionId{event.data.u64})) {
            turn(*connection, event.events);
        }
    }
    for (std::size_t i = 0; i < ready; ++i) {
        if (Connection* const connection = connections_.find(ready_[i])) turn(*connection, 0);
    }
    ready_.erase(ready_.begin(), ready_.begin() + static_cast<std::ptrdiff_t>(ready));
    do_what_is_due();
    return count + ready;
}

void EpollServer::do_what_is_due() {
    watch_spare();
    const auto due = deadline();
    if (!due) return;
    const TimePoint now = now_();
    if (now < *due) return;
    if (accepting_ == Accepting::kFailing && now >= accept_again_at_) listen_for(Accepting::kYes);
    if (inside_ > 0 && now >= look_for_stalled_at_) end_stalled(now);
    if (now >= drop_spare_at_) block_memory_.spare.drop();
}

std::size_t EpollServer::wait(std::chrono::nanoseconds patience, const sigset_t* signals) {
    if (!ready_.empty()) patience = 0ns;
    if (const auto due = deadline(); due && patience != 0ns) {
        const auto left = std::max<std::chrono::nanoseconds>(*due - now_(), 0ns);
        patience = patience < 0ns ? left : std::min(patience, left);
    }
    const auto whole = std::min<std::chrono::milliseconds>(std::chrono::ceil<std::chrono::milliseconds>(patience), 60s);
    const int count = ::epoll_pwait(epoll_.get(), events_.data(), static_cast<int>(events_.size()),
                                    patience < 0ns ? -1 : static_cast<int>(whole.count()), signals);
    interrupted_ = count < 0;  // by EINTR, the only way in which it can fail
    return count > 0 ? static_cast<std::size_t>(count) : 0;
}

std::optional<TimePoint> EpollServer::deadline() const {
    std::optional<TimePoint> due;
    if (accepting_ == Accepting::kFailing) due = accept_again_at_;
    if (inside_ > 0) due = due ? std::min(*due, look_for_stalled_at_) : look_for_stalled_at_;
    if (!block_memory_.spare.empty()) due = due ? std::min(*due, drop_spare_at_) : drop_spare_at_;
    return due;
}

void EpollServer::watch_spare() {
    if (block_memory_.spare.times_kept() == spare_seen_) return;
    spare_seen_ = block_memory_.spare.times_kept();
    drop_spare_at_ = now_() + kSpareStays;
}

}  // namespace ddprun::store
