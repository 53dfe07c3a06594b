#pragma once
// Admission: accepts connections on a store's listening socket, as long as its limits and the system's allow it. A part
// of EpollServer, on its thread.

#include <optional>

#include "common/clock.hpp"
#include "rendezvous/store/server/listener.hpp"
#include "rendezvous/store/server/server_context.hpp"

namespace ddprun::store {

class Admission {
public:
    /// `listener` is in the epoll set of `context`, which outlives this.
    Admission(Listener listener, ServerContext& context) : context_(context), listener_(std::move(listener)) {}

    /// Accepts waiting connections, but only as many as leave the open ones their turn. Call it when the listener is
    /// readable. Stops listening at the limit of connections, and for a pause after a failure.
    void accept();
    /// Adds a connection that was accepted elsewhere, where its user was checked; closes it at the limit of
    /// connections, or after a failure.
    void adopt(UniqueFd socket);
    /// Accepts again if the number of connections was at its limit. Called whenever a connection has ended.
    void connection_ended();
    /// Returns the time of the next try_again(); empty if no accept has failed.
    [[nodiscard]] std::optional<TimePoint> deadline() const;
    /// Accepts again after a failure, once deadline() has passed.
    void try_again(TimePoint now);
    void close();
    [[nodiscard]] bool is_closed() const { return state_ == State::kClosed; }

private:
    enum class State { kAccepting, kAtLimit, kFailing, kClosed };

    /// Returns whether the client may be served now. If not, logs why, or has handed it over to be screened.
    [[nodiscard]] bool is_welcome(Listener::Accepted& accepted);
    void admit(Listener::Accepted accepted);
    void cannot_accept(int error);
    void listen_for(State state);

    ServerContext& context_;
    std::optional<Listener> listener_;
    State state_ = State::kAccepting;
    bool failed_ = false;  ///< since the last accept that succeeded
    TimePoint try_again_at_;
};

}  // namespace ddprun::store
