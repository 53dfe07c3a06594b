#include "common/system/process_state.hpp"

#include <unistd.h>

#include <csignal>

#include "tests/catch.hpp"

using namespace ddprun;

TEST_CASE("the signals that a process ignores are read from its status", "[common][unit]") {
    const char* status = "Name:\tx\nSigPnd:\t0000000000000000\nSigIgn:\t0000000000001006\nSigCgt:\t0000000000004000\n";
    CHECK(parse_ignores_signal(status, SIGINT));
    CHECK(parse_ignores_signal(status, SIGQUIT));
    CHECK(parse_ignores_signal(status, SIGPIPE));
    CHECK_FALSE(parse_ignores_signal(status, SIGTERM));
    CHECK_FALSE(parse_ignores_signal("", SIGINT));
    CHECK_FALSE(parse_ignores_signal("Name:\tx\nSigIgn:\t", SIGINT));
    ::signal(SIGUSR2, SIG_IGN);
    CHECK(ignores_signal(::getpid(), SIGUSR2));
    ::signal(SIGUSR2, SIG_DFL);
    CHECK_FALSE(ignores_signal(::getpid(), SIGUSR2));
}
