#include "common/system/exit_status.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "common/ids.hpp"
#include "tests/catch.hpp"

using ddprun::ExitStatus;

namespace {

template <typename Child>
ExitStatus status_of(Child&& child) {
    const pid_t pid = ::fork();
    if (pid == 0) {
        child();
        ::_exit(99);
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    return ddprun::exit_status_from_wait(status);
}

}  // namespace

TEST_CASE("exit(11) and a segmentation fault are distinguished", "[common]") {
    const ExitStatus exited = status_of([] { ::_exit(11); });
    const ExitStatus signaled = status_of([] { ::raise(SIGKILL); });
    CHECK(exited == ExitStatus{ExitStatus::Kind::kExited, 11, false});
    CHECK(exited.exit_code() == 11);
    CHECK(to_string(exited) == "exited with code 11");
    CHECK(signaled == ExitStatus{ExitStatus::Kind::kSignaled, SIGKILL, false});
    CHECK(signaled.exit_code() == 137);
    CHECK(to_string(signaled) == "was killed by SIGKILL");
    CHECK_FALSE(signaled.success());
    CHECK(ExitStatus{}.success());
}

TEST_CASE("signals without a name keep their number", "[common]") {
    CHECK(ddprun::signal_name(SIGTERM) == "SIGTERM");
    CHECK(ddprun::signal_name(77) == "signal 77");
}

TEST_CASE("random ids are 32 hexadecimal digits and differ", "[common]") {
    const std::string first = ddprun::random_id();
    CHECK(first.size() == 32);
    CHECK(first.find_first_not_of("0123456789abcdef") == std::string::npos);
    CHECK(first != ddprun::random_id());
}
