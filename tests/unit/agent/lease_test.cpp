// The lease by which the workers of a node run.
#include "agent/link/lease.hpp"

#include "tests/catch.hpp"

using namespace ddprun;
using namespace ddprun::agent;
using namespace std::chrono_literals;

namespace {

constexpr TimePoint kStart{100s};

protocol::Welcome limits() {
    protocol::Welcome welcome;
    welcome.heartbeat_interval = 500ms;
    welcome.lost_after = 3s;
    welcome.reconnect_grace = 800ms;
    welcome.hold = 30s;
    return welcome;
}

Lease begun() {
    Lease lease;
    lease.join_sent(kStart);
    lease.welcomed(limits());
    return lease;
}

}  // namespace

TEST_CASE("before the first Welcome there is no lease that could end", "[agent]") {
    CHECK(Lease().ends() > kStart + std::chrono::hours(24 * 365));
}

TEST_CASE("a Welcome confirms the Join, not the moment at which it came", "[agent]") {
    const Lease lease = begun();
    CHECK(lease.ends() == kStart + 2500ms);  // one interval before the daemon could count this node as lost
    CHECK(lease.ended_for_good_at() == kStart + 3s);
    CHECK(lease.held_until() == kStart + 30s);
    CHECK(lease.given_up_at() == kStart + 90s);
}

TEST_CASE("the lease goes on from when the newest confirmed heartbeat was sent", "[agent]") {
    Lease lease = begun();
    CHECK(lease.next_heartbeat(kStart + 500ms) == protocol::Heartbeat{1, 0});
    CHECK(lease.next_heartbeat(kStart + 1s) == protocol::Heartbeat{2, 0});
    lease.heard({7, 1});
    CHECK(lease.ends() == kStart + 3s);
    lease.heard({8, 1});  // nothing new
    CHECK(lease.ends() == kStart + 3s);
    CHECK(lease.next_heartbeat(kStart + 1500ms) == protocol::Heartbeat{3, 8});
    lease.heard({9, 3});
    CHECK(lease.ends() == kStart + 4s);
    lease.heard({10, 99});  // of a daemon that is mistaken
    CHECK(lease.ends() == kStart + 4s);
}

TEST_CASE("heartbeats that were lost with a connection are not confirmed by those after them", "[agent]") {
    Lease lease = begun();
    static_cast<void>(lease.next_heartbeat(kStart + 500ms));
    static_cast<void>(lease.next_heartbeat(kStart + 1s));
    lease.connection_ended(kStart + 1200ms);
    CHECK(lease.ends() == kStart + 1600ms);   // the daemon waits less long for another connection than for a silent one
    lease.connection_ended(kStart + 1250ms);  // another one, without a Welcome
    CHECK(lease.ends() == kStart + 1600ms);
    lease.join_sent(kStart + 1300ms);
    lease.welcomed(limits());
    CHECK(lease.ends() == kStart + 3800ms);
    static_cast<void>(lease.next_heartbeat(kStart + 2s));
    lease.heard({5, 0});  // sent before the daemon got it
    CHECK(lease.ends() == kStart + 3800ms);
    lease.heard({6, 3});
    CHECK(lease.ends() == kStart + 4500ms);
}

TEST_CASE("the newest heartbeat counts, however many before it were not confirmed", "[agent]") {
    Lease lease = begun();
    for (int i = 1; i <= 1000; ++i) static_cast<void>(lease.next_heartbeat(kStart + i * 500ms));
    lease.heard({1, 1000});
    CHECK(lease.ends() == kStart + 500s + 2500ms);
}

TEST_CASE("after a pause of this process the daemon is asked before it is given up", "[agent]") {
    Lease lease = begun();
    lease.stood_still(kStart + 100s, 90s);
    CHECK(lease.ends() == kStart + 2500ms);  // the workers must not run meanwhile
    for (const TimePoint end : {lease.held_until(), lease.ended_for_good_at(), lease.given_up_at()})
        CHECK(end == kStart + 103s);
    lease.join_sent(kStart + 101s);
    lease.welcomed(limits());
    CHECK(lease.held_until() == kStart + 131s);
}
