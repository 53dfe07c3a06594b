#pragma once
// Lease: until when the workers of this node may run, as the daemon's answers show (docs/design/026). Every time in it
// is of this node's clock: when it sent what the daemon has confirmed. The limits come with the Welcome. Used by
// link::step() alone. Pure.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>

#include "common/clock.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::agent {

class Lease {
public:
    // ---- what happens

    void join_sent(TimePoint now) { join_sent_ = now; }
    /// Takes the limits. A Welcome confirms the Join.
    void welcomed(const protocol::Welcome& welcome);
    /// Returns the heartbeat to send now.
    [[nodiscard]] protocol::Heartbeat next_heartbeat(TimePoint now);
    /// Takes a heartbeat of the daemon, which confirms those of this node that it has heard.
    void heard(const protocol::Heartbeat& heartbeat);
    /// The daemon waits for another connection less long than for one that has fallen silent.
    void connection_ended(TimePoint now) {
        if (!ended_at_) ended_at_ = now;  // one that ends without a Welcome gives no more time
    }

    /// This process, or its machine, has just gone on after `pause`: the daemon is not given up before it is asked.
    void stood_still(TimePoint now, Duration pause) {
        asked_until_ = now + limits_.lost_after;
        latest_pause_ = pause;
    }

    // ---- what follows

    [[nodiscard]] std::chrono::milliseconds heartbeat_interval() const { return limits_.heartbeat_interval; }
    /// Returns how long the workers may run after what was confirmed.
    [[nodiscard]] Duration length() const { return limits_.lost_after - limits_.heartbeat_interval; }
    /// Returns when the workers must not run any more unless more is confirmed. The daemon can count this node as lost
    /// only later: its clock began when it got what is confirmed.
    [[nodiscard]] TimePoint ends() const;
    /// Returns when a daemon whose host answers that none is there has ended for good.
    [[nodiscard]] TimePoint ended_for_good_at() const {
        return std::max(confirmed_ + limits_.lost_after, asked_until_);
    }
    /// Returns when the workers that wait for the daemon are ended: others may need what they hold.
    [[nodiscard]] TimePoint held_until() const { return std::max(confirmed_ + limits_.hold, asked_until_); }
    /// Returns when the daemon is given up. After held_until() it may take this node in again, without its workers.
    [[nodiscard]] TimePoint given_up_at() const {
        return std::max(confirmed_ + protocol::kHoldsOfSearch * limits_.hold, asked_until_);
    }
    /// Returns until when the daemon is asked after a pause of this process, whatever seems to have ended meanwhile.
    [[nodiscard]] TimePoint asked_until() const { return asked_until_; }
    /// Returns how long this process, or its machine, stood still before that.
    [[nodiscard]] Duration latest_pause() const { return latest_pause_; }
    [[nodiscard]] TimePoint confirmed_at() const { return confirmed_; }

private:
    protocol::Welcome limits_;
    TimePoint join_sent_;
    TimePoint confirmed_ = TimePoint::max() - std::chrono::hours(1);  ///< before the first Welcome nothing ends
    TimePoint asked_until_{};
    Duration latest_pause_{};
    std::optional<TimePoint> ended_at_;  ///< when the connection ended; empty: it has not
    std::uint64_t sent_ = 0;             ///< the number of the newest heartbeat
    std::deque<TimePoint> unconfirmed_;  ///< when the newest ones were sent, oldest first
    std::uint64_t heard_ = 0;            ///< the number of the daemon's newest
};

}  // namespace ddprun::agent
