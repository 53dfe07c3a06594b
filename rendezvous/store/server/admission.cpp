#include "rendezvous/store/server/admission.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

namespace ddprun::store {
namespace {

using namespace std::chrono_literals;

/// The pause after a failed accept, typically for lack of descriptors.
constexpr auto kAcceptPause = 100ms;
/// The maximum number of new connections in one slice of the listener.
constexpr int kAcceptsPerSlice = 64;

}  // namespace

void Admission::accept() {
    for (int i = 0; i < kAcceptsPerSlice && state_ == State::kAccepting; ++i) {
        if (context_.connections.size() >= context_.options.limits.connections) {
            context_.warn([this] {
                return fmt::format("store {}: has {} connections, which is its limit: further ones wait until one ends",
                                   context_.name, context_.connections.size());
            });
            return listen_for(State::kAtLimit);
        }
        auto accepted = listener_->accept();
        if (accepted.error != 0) return cannot_accept(accepted.error);
        if (!accepted.socket) return;
        if (std::exchange(failed_, false)) {
            context_.warn([this] { return fmt::format("store {}: accepts connections again", context_.name); });
        }
        try {
            if (is_welcome(accepted)) admit(std::move(accepted));  // else it is closed, or being screened
        } catch (const std::bad_alloc&) {
            return cannot_accept(ENOMEM);
        }
    }
}

bool Admission::is_welcome(Listener::Accepted& accepted) {
    if (!context_.owners) return true;
    const PeerOwner owner = context_.owners->find(accepted.socket.get());
    if (owner.kind == PeerOwner::Kind::kOtherHost && context_.admits_host) {
        const std::string host = text_of(address_of(accepted.peer));
        if (context_.admits_host(host)) {
            if (!context_.screens_client) return true;
            context_.screens_client(std::move(accepted.socket), host);
            return false;
        }
        ++context_.statistics.refused;
        context_.warn([&] {
            return fmt::format(
                "store {}: closed a new connection from {}: no node with workers of this job has joined from {}. If a "
                "worker of the job runs there, start the daemon's node with --local-addr (ddprund with "
                "--store-address), which admits all hosts (INSECURE)",
                context_.name, to_text(accepted.peer), host);
        });
        return false;
    }
    if (is_own_or_remote(owner)) return true;
    ++context_.statistics.refused;
    context_.warn([&] {
        return fmt::format(
            "store {}: closed a new connection from {}: it is that of {}, and on this host only those "
            "of user {} are served",
            context_.name, to_text(accepted.peer), to_string(owner), ::geteuid());
    });
    return false;
}

void Admission::adopt(UniqueFd socket) {
    Listener::Accepted accepted{.socket = std::move(socket)};
    socklen_t size = sizeof accepted.peer;
    if (::getpeername(accepted.socket.get(), reinterpret_cast<sockaddr*>(&accepted.peer), &size) != 0) return;  // ended
    if (context_.connections.size() >= context_.options.limits.connections) {
        ++context_.statistics.refused;
        return context_.warn([&] {
            return fmt::format("store {}: closed a new connection from {}: it has {} connections, which is its limit",
                               context_.name, to_text(accepted.peer), context_.connections.size());
        });
    }
    ::fcntl(accepted.socket.get(), F_SETFL, O_NONBLOCK);
    ::fcntl(accepted.socket.get(), F_SETFD, FD_CLOEXEC);
    prepare_connection(accepted.socket.get());
    try {
        admit(std::move(accepted));
    } catch (const std::bad_alloc&) {
        cannot_accept(ENOMEM);
    }
}

void Admission::admit(Listener::Accepted accepted) {
    Connections& connections = context_.connections;
    const PeerAddress address = address_of(accepted.peer);
    if (connections.count_from(address) >= context_.options.limits.connections_per_address) {
        ++context_.statistics.refused;
        return context_.warn([&] {
            return fmt::format("store {}: closed a new connection from {}: that address has {}, which is its limit",
                               context_.name, to_text(accepted.peer), connections.count_from(address));
        });
    }
    Connection& connection =
        connections.add(std::move(accepted.socket), address, Decoder(context_.options, &context_.block_memory));
    epoll_event event{EPOLLIN, {.u64 = static_cast<std::uint64_t>(connection.id)}};
    if (::epoll_ctl(context_.epoll.get(), EPOLL_CTL_ADD, connection.socket.get(), &event) != 0) {
        const int error = errno;
        connections.remove(connection);
        return cannot_accept(error);
    }
    ++context_.statistics.accepted;
}

void Admission::cannot_accept(int error) {
    ++context_.statistics.accept_failures;
    // Logs once in a row of failures. The connection stays in the backlog, so trying again at once would spin.
    if (!std::exchange(failed_, true)) {
        context_.warn([&] {
            return fmt::format("store {}: cannot accept a connection: {}; {} are open. {}. Trying again every {} ms",
                               context_.name, std::generic_category().message(error), context_.connections.size(),
                               advice_after(error), kAcceptPause.count());
        });
    }
    try_again_at_ = context_.now() + kAcceptPause;
    listen_for(State::kFailing);
}

void Admission::connection_ended() {
    if (state_ == State::kAtLimit) listen_for(State::kAccepting);
}

std::optional<TimePoint> Admission::deadline() const {
    return state_ == State::kFailing ? std::optional(try_again_at_) : std::nullopt;
}

void Admission::try_again(TimePoint now) {
    if (state_ == State::kFailing && now >= try_again_at_) listen_for(State::kAccepting);
}

void Admission::close() {
    listener_.reset();
    state_ = State::kClosed;
}

void Admission::listen_for(State state) {
    epoll_event event{state == State::kAccepting ? EPOLLIN : EPOLL_EVENTS{}, {.u64 = 0}};
    ::epoll_ctl(context_.epoll.get(), EPOLL_CTL_MOD, listener_->fd(), &event);  // cannot fail: it is in the set
    state_ = state;
}

}  // namespace ddprun::store
