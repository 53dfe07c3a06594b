#include "launcher/host/limits.hpp"

#include "tests/catch.hpp"

using namespace ddprun;
using namespace ddprun::launcher;
using Catch::Contains;

TEST_CASE("more workers than the limits allow are refused with the limit, the need and the remedy",
          "[launcher][unit]") {
    const auto problem = [](const Demand& demand, const ProcessLimits& limits) {
        const auto checked = check_limits(demand, limits);
        return checked ? std::string() : checked.error().message;
    };
    CHECK(problem({4096, 1, 0}, {.open_files = 1024}) ==
          "4096 workers per node need about 16416 open files, and only 1024 are allowed here. Raise `ulimit -n`, or "
          "start fewer workers (--nproc-per-node).");
    CHECK(problem({2000, 1, 0}, {.open_files = 1024, .max_open_files = 4096}) ==
          "2000 workers per node need about 8032 open files, and only 1024 are allowed here. The hard limit is 4096: "
          "raise it as root (nofile in /etc/security/limits.conf, LimitNOFILE= of a service, --ulimit of a container), "
          "or start fewer workers (--nproc-per-node).");
    CHECK_THAT(problem({200, 1, 2}, {.open_files = 1024}), Contains("1232 open files"));
    CHECK(problem({200, 1, 0}, {.open_files = 1024}).empty());
    CHECK(problem({200, 64, 0}, {.open_files = 1024}).empty());  // each node has files of its own
    CHECK_THAT(problem({64, 8, 0}, {.user_processes = 500}),
               Contains("64 workers per node on 8 emulated nodes need about 548 processes") && Contains("ulimit -u"));
    CHECK_THAT(problem({64, 1, 0}, {.cgroup_processes = 50}), Contains("pids.max"));
    CHECK_THAT(problem({64, 1, 0}, {.machine_pids = 50}), Contains("kernel.pid_max"));
    CHECK(problem({4096, 1024, 0}, {}).empty());
}

TEST_CASE("a job whose daemon needs more open files than the hard limit is refused before it starts",
          "[launcher][unit]") {
    CHECK(check_daemon_limits({500, 8}, {.max_open_files = 16'384}).has_value());
    CHECK(check_daemon_limits({4000, 8}, {}).has_value());
    CHECK(check_daemon_limits({4000, 8}, {.open_files = 1024, .max_open_files = 4096}).error().message ==
          "The rendezvous daemon of 4000 nodes with 8 workers each needs about 36064 open files on this host, and its "
          "hard limit is 4096: raise it as root (nofile in /etc/security/limits.conf, LimitNOFILE= of a service, "
          "--ulimit of a container), start the daemon's node on a host with a higher limit, or start fewer workers.");
}

TEST_CASE("a small job is within the limits of this machine", "[launcher][unit]") {
    CHECK(check_limits({1, 1, 0}, process_limits()).has_value());
    CHECK(check_daemon_limits({1, 1}, process_limits()).has_value());
    CHECK(process_limits().open_files);
}
