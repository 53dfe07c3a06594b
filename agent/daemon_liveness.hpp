#pragma once
// DaemonLiveness: the heartbeat interval and the limit of silence, which the daemon sends in its Welcome, and the time
// at which a silent daemon counts as lost. The values come from the daemon's options (coordinator::Config). Used by
// DaemonLink alone. Pure.

#include <chrono>

#include "common/clock.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::agent {

class DaemonLiveness {
public:
    /// Before the first Welcome the connect timeout is the limit.
    explicit DaemonLiveness(std::chrono::milliseconds connect_timeout) : lost_after_(connect_timeout) {}

    void agree(const protocol::Welcome& welcome) {
        heartbeat_interval_ = welcome.heartbeat_interval;
        lost_after_ = welcome.lost_after;
    }
    void heard_at(TimePoint now) { heard_ = now; }

    [[nodiscard]] std::chrono::milliseconds heartbeat_interval() const { return heartbeat_interval_; }
    [[nodiscard]] std::chrono::milliseconds lost_after() const { return lost_after_; }
    /// Returns when the daemon counts as lost if it stays silent.
    [[nodiscard]] TimePoint deadline() const { return heard_ + lost_after_; }

private:
    std::chrono::milliseconds heartbeat_interval_ = protocol::Welcome{}.heartbeat_interval;
    std::chrono::milliseconds lost_after_;
    TimePoint heard_;  ///< when the daemon's latest message came
};

}  // namespace ddprun::agent
