// The statistics line of `ddprund --store`.

#include "rendezvous/daemon/store_program.hpp"
#include "tests/catch.hpp"

using namespace ddprun;
using namespace std::chrono_literals;

TEST_CASE("statistics of an unused store fit in one short line", "[daemon][unit]") {
    CHECK(daemon::statistics_line({}, 0s) ==
          "up 0 s; 0 connections (0 accepted, 0 refused); 0 keys and 0 waits in 0 B; 0 requests; "
          "0 B in, 0 B out; 0 B buffered");
}

TEST_CASE("statistics name the requests that were made, and amounts in readable units", "[daemon][unit]") {
    store::Statistics now;
    now.connections = 1;
    now.accepted = 3;
    now.refused = 2;
    now.accept_failures = 4;
    now.keys = 1;
    now.waiters = 2;
    now.store_bytes = 1536;
    now.received_bytes = std::uint64_t{5} << 40;
    now.sent_bytes = 1023;
    now.buffer_bytes = 64 << 20;
    now.requests[static_cast<std::size_t>(store::RequestKind::kSet)] = 40;
    now.requests[static_cast<std::size_t>(store::RequestKind::kQueueLength)] = 1;
    now.requests[static_cast<std::size_t>(store::RequestKind::kBarrier)] = 9;
    CHECK(daemon::statistics_line(now, 3600s) ==
          "up 3600 s; 1 connection (3 accepted, 2 refused, 4 failed accepts); 1 key and "
          "2 waits in 1.5 KiB; 50 requests: SET 40, QUEUE_LEN 1, BARRIER 9; 5.0 TiB in, 1023 B out; 64.0 MiB buffered");
}
