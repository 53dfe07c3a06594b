#include "launcher/cluster_signals.hpp"

#include <signal.h>
#include <unistd.h>

#include "tests/catch.hpp"

using ddprun::launcher::ClusterSignals;

namespace {

bool is_blocked(int signal) {
    sigset_t mask;
    ::sigprocmask(SIG_BLOCK, nullptr, &mask);
    return ::sigismember(&mask, signal) == 1;
}

}  // namespace

TEST_CASE("signals are blocked and queued for the launcher of emulated nodes, and the mask is restored",
          "[launcher][unit]") {
    REQUIRE_FALSE(is_blocked(SIGUSR1));
    {
        ClusterSignals signals;
        CHECK(is_blocked(SIGUSR1));
        CHECK_FALSE(signals.next().has_value());
        REQUIRE(::kill(::getpid(), SIGUSR1) == 0);
        CHECK(signals.next() == SIGUSR1);
        CHECK_FALSE(signals.next().has_value());
    }
    CHECK_FALSE(is_blocked(SIGUSR1));
}
