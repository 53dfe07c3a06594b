// The rows of docs/design/003-worker-group.md, one by one: signals, a lost guard, and the end.
#include "tests/catch.hpp"
#include "tests/unit/agent/group/group.hpp"

using namespace group_test;

TEST_CASE("a signal before any worker runs ends the agent at once", "[agent]") {
    const int signal = GENERATE(SIGINT, SIGTERM, SIGHUP, SIGQUIT);
    Group group = Group() << StopSignal{signal};
    REQUIRE(group.actions.size() == 2);
    CHECK(group.actions[0] == Action{SendMessage{Leave{signal}}});
    CHECK(group.finished_with(128 + signal));
}

TEST_CASE("a drain sends Leave, gives the workers their grace and ends with 128 plus the signal", "[agent]") {
    Group group = running(1) << StopSignal{SIGTERM};
    CHECK(group.actions == Actions{SendMessage{Leave{SIGTERM}}, SignalGroup{SIGTERM}});
    group << WorkerExited{LocalRank{0}, exited(0)};
    CHECK(group.actions == Actions{ReportTimeouts{LocalRank{0}}});
    group << GroupReaped{};
    REQUIRE(group.actions.size() == 2);
    CHECK(group.actions[0] == Action{SendMessage{GroupStopped{Generation{1}}}});
    CHECK(group.finished_with(143));
}

TEST_CASE("workers get the signal that is meant for them, and processes that outlive the grace are killed", "[agent]") {
    Group group = running(1) << StopSignal{SIGUSR1, SIGUSR1};
    CHECK(group.actions == Actions{SendMessage{Leave{SIGUSR1}}, SignalGroup{SIGUSR1}});
    group.after(kGrace) << Tick{};
    CHECK(group.actions == Actions{SignalGroup{SIGKILL}});
    CHECK_THAT(group.reason, Catch::Contains("s after SIGUSR1; killing them"));
    group << WorkerExited{LocalRank{0}, killed_by(SIGKILL)} << GroupReaped{};
    CHECK(group.finished_with(128 + SIGUSR1));
    Group hung_up = running(1) << StopSignal{SIGHUP};
    CHECK(hung_up.actions == Actions{SendMessage{Leave{SIGHUP}}, SignalGroup{SIGTERM}});
}

TEST_CASE("workers that are ending by themselves get the signal a second after their group", "[agent]") {
    Group group = stopping_after_failure();
    CHECK(next_deadline(group.state) == kStart + kGrace);
    group << WorkersSpared{};
    CHECK(group.actions.empty());
    CHECK(next_deadline(group.state) == kStart + kSparedFor);
    group.after(kSparedFor - 1ms) << Tick{};
    CHECK(group.actions.empty());
    SECTION("if they still run") {
        group.after(1ms) << Tick{};
        CHECK(group.actions == Actions{SignalSpared{}});
        CHECK(next_deadline(group.state) == kStart + kGrace);
        CHECK((group << Tick{}).actions.empty());
    }
    SECTION("but not after SIGKILL") {
        group << GuardLost{};
        CHECK(group.actions == Actions{SignalGroup{SIGKILL}});
        CHECK((group.after(1s) << Tick{}).actions.empty());
    }
    SECTION("but not when the group is reaped") {
        group << WorkerExited{LocalRank{1}, exited(3), true} << GroupReaped{};
        CHECK_FALSE(next_deadline(group.state));
        CHECK((group.after(1s) << Tick{}).actions.empty());
    }
}

TEST_CASE("the last line of a drained node names the signal and counts the stopped workers", "[agent]") {
    const auto last_line = [](const Group& group) { return std::get<Finish>(group.actions.back()).why; };
    CHECK(last_line(Group() << StopSignal{SIGINT}) == "interrupted by SIGINT; no worker was running");
    Group group = running(2) << StopSignal{SIGTERM} << WorkerExited{LocalRank{0}, exited(0)};
    group << WorkerExited{LocalRank{1}, exited(0)} << GroupReaped{};
    CHECK(last_line(group) == "interrupted by SIGTERM: 2 workers stopped on this node");
    Assignment alone = assignment(1);
    alone.node_count = 1;
    Group single = Group(1) << Assigned{alone} << StopSignal{SIGINT} << WorkerExited{LocalRank{0}, exited(0)};
    CHECK(last_line(single << GroupReaped{}) == "interrupted by SIGINT: 1 worker stopped on 1 node");
}

TEST_CASE("a start that fails because of the node is not a failure of the program", "[agent]") {
    const auto code = [](Errc errc) {
        const Group group = running() << SpawnFailed{LocalRank{1}, {errc, "cannot fork"}};
        return std::get<ReportFailure>(group.actions.at(0)).status;
    };
    CHECK(code(Errc::kLimit) == exited(exit_code::kInfrastructure));
    CHECK(code(Errc::kSystem) == exited(exit_code::kInternal));
}

TEST_CASE("a verdict that arrives during a drain is the exit code", "[agent]") {
    Group group = running(1) << StopSignal{SIGTERM} << JobFinished{verdict(Outcome::kWorkerFailed, 9)};
    group << WorkerExited{LocalRank{0}, exited(0)} << GroupReaped{};
    CHECK(group.finished_with(9));
}

TEST_CASE("a second interrupt kills at once, but not within half a second of the first", "[agent]") {
    const int signal = GENERATE(SIGINT, SIGTERM);
    Group group = running() << StopSignal{SIGINT};
    group.after(499ms) << StopSignal{signal};
    CHECK(group.actions.empty());
    group.after(1ms) << StopSignal{signal};
    CHECK(group.actions == Actions{SignalGroup{SIGKILL}});
    group << StopSignal{signal};
    CHECK(group.actions.empty());
}

TEST_CASE("a second hang-up does not kill", "[agent]") {
    Group group = running() << StopSignal{SIGHUP};
    group.after(5s) << StopSignal{SIGHUP};
    CHECK(group.actions.empty());
}

TEST_CASE("a node that leaves starts no workers but answers assignments", "[agent]") {
    Group group = running(1) << StopSignal{SIGTERM} << Assigned{assignment(2)};
    CHECK(group.actions == Actions{SendMessage{GroupStopped{Generation{2}}}});
}

TEST_CASE("notifications reach running workers only and stop no worker", "[agent]") {
    Group group = running() << NotifySignal{SIGUSR1};
    CHECK(group.actions == Actions{NotifyWorkers{SIGUSR1}});
    CHECK(group.state.phase == Phase::kRunning);
    Group idle = Group() << NotifySignal{SIGUSR1};
    CHECK(idle.actions.empty());
    Group stopping = stopping_after_failure() << NotifySignal{SIGUSR1};
    CHECK(stopping.actions.empty());
}

TEST_CASE("without its guard the agent kills at once and sends the daemon nothing", "[agent]") {
    Group group = running(1) << GuardLost{};
    CHECK(group.actions == Actions{SignalGroup{SIGKILL}});
    group << Assigned{assignment(2)};
    CHECK(group.actions.empty());
    group << WorkerExited{LocalRank{0}, killed_by(SIGKILL)} << GroupReaped{};
    CHECK(group.actions.size() == 1);  // a report that the group has stopped would bring a new assignment
    CHECK(group.finished_with(exit_code::kInfrastructure));
    CHECK((Group() << GuardLost{}).finished_with(exit_code::kInfrastructure));
}

TEST_CASE("strays that outlive the grace after a success are killed, and the success stands", "[agent]") {
    Group group = running(1) << WorkerExited{LocalRank{0}, exited(0)};
    group.after(kGrace) << Tick{};
    CHECK(group.actions == Actions{SignalGroup{SIGKILL}});
    group << GroupReaped{};
    CHECK(group.actions.empty());
    CHECK(group.state.phase == Phase::kSucceeded);
}

TEST_CASE("after the end events have no effect", "[agent]") {
    Group group = Group() << StopSignal{SIGINT};
    group << Assigned{assignment(1)};
    CHECK(group.actions.empty());
    CHECK(group.state.phase == Phase::kDone);
}
