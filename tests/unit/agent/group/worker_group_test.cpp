// The rows of docs/design/003-worker-group.md, one by one. Signals: worker_group_signals_test.cpp.
#include "tests/catch.hpp"
#include "tests/unit/agent/group/group.hpp"

using namespace group_test;

// ---- the ordinary life of a job ----

TEST_CASE("an assignment starts the workers", "[agent]") {
    const Group group = running();
    CHECK(group.actions == Actions{StartWorkers{assignment(1)}});
    CHECK(group.state.phase == Phase::kRunning);
    CHECK(group.state.running.size() == 2);
}

TEST_CASE("success is reported when the last worker has exited with 0, and strays get SIGTERM", "[agent]") {
    Group group = running() << WorkerExited{LocalRank{1}, exited(0)};
    CHECK(group.actions == Actions{ReportTimeouts{LocalRank{1}}, SendMessage{WorkerFinished{Generation{1}, Rank{3}}}});
    group << WorkerExited{LocalRank{0}, exited(0)};
    CHECK(group.actions ==
          Actions{ReportTimeouts{LocalRank{0}}, SendMessage{GroupSucceeded{Generation{1}}}, SignalGroup{SIGTERM}});
    CHECK(group.state.phase == Phase::kSucceeded);
    group << GroupReaped{};
    CHECK(group.actions.empty());
    CHECK_FALSE(group.state.deadline);
    group << JobFinished{verdict(Outcome::kSucceeded, 0)};
    CHECK(group.finished_with(0));
}

TEST_CASE("a verdict waits for the last stray", "[agent]") {
    Group group = running(1) << WorkerExited{LocalRank{0}, exited(0)} << JobFinished{verdict(Outcome::kSucceeded, 0)};
    CHECK(group.actions.empty());
    group << GroupReaped{};
    CHECK(group.finished_with(0));
}

TEST_CASE("a node without which the job succeeded has run nothing, and does not end with 0", "[agent]") {
    Group group;
    group << JobFinished{verdict(Outcome::kSucceeded, 0)};
    REQUIRE(group.finished_with(exit_code::kNeverRan));
    CHECK_THAT(std::get<Finish>(group.actions.back()).why, Catch::Contains("no worker has run here"));
    Group failed;
    failed << JobFinished{verdict(Outcome::kWorkerFailed, 7)};
    CHECK(failed.finished_with(7));
}

// ---- failures ----

TEST_CASE("a crash is reported at once and stops the siblings", "[agent]") {
    const Group group = running() << WorkerExited{LocalRank{1}, killed_by(SIGSEGV)};
    INFO(group.reason);
    CHECK(group.actions ==
          Actions{ReportFailure{Generation{1}, LocalRank{1}, killed_by(SIGSEGV), ""}, SignalGroup{SIGTERM}});
    CHECK(group.state.deadline == kStart + kGrace);
    CHECK_THAT(group.reason, Catch::Contains("rank 3") && Catch::Contains("SIGSEGV"));
}

TEST_CASE("siblings that end because of the stop are not failures", "[agent]") {
    Group group = stopping_after_failure() << WorkerExited{LocalRank{1}, killed_by(SIGTERM)};
    CHECK(group.actions.empty());
    CHECK(group.reason.empty());
}

TEST_CASE("a failure that the stop did not cause is reported, for it may be the cause of the others", "[agent]") {
    const auto report = [](const WorkerExited& event) {
        return (running() << AbortReceived{Generation{1}, "rank 7 exited with code 1"} << event).actions;
    };
    CHECK(report({LocalRank{1}, killed_by(SIGKILL), true}) ==
          std::vector<Action>{ReportFailure{Generation{1}, LocalRank{1}, killed_by(SIGKILL), ""}});
    CHECK(report({LocalRank{1}, killed_by(SIGSEGV), false}).empty());  // in its handler of our SIGTERM
    CHECK(report({LocalRank{1}, exited(1), true}) ==
          std::vector<Action>{ReportFailure{Generation{1}, LocalRank{1}, exited(1), ""}});
    CHECK(report({LocalRank{1}, exited(1), false}).empty());  // its way to obey
    CHECK(report({LocalRank{1}, exited(0), true}) == Actions{ReportTimeouts{LocalRank{1}}});
}

TEST_CASE("a group is reported as stopped only when no process is left", "[agent]") {
    Group group = stopping_after_failure() << WorkerExited{LocalRank{1}, killed_by(SIGTERM)};
    CHECK(group.actions.empty());
    group << GroupReaped{};
    CHECK(group.actions == Actions{SendMessage{GroupStopped{Generation{1}}}});
    CHECK(group.state.phase == Phase::kIdle);
    group << Assigned{assignment(2)};
    CHECK(group.actions == Actions{StartWorkers{assignment(2)}});
}

TEST_CASE("processes that outlive the grace are killed, and not a moment before", "[agent]") {
    Group group = stopping_after_failure();
    group.after(kGrace - 1ms) << Tick{};
    CHECK(group.actions.empty());
    group.after(1ms) << Tick{};
    CHECK(group.actions == Actions{SignalGroup{SIGKILL}});
    group << Tick{};
    CHECK(group.actions.empty());
}

TEST_CASE("a process that survives SIGKILL does not keep the agent for ever", "[agent]") {
    Group group = stopping_after_failure();
    group.after(kGrace) << Tick{};
    group.after(kUnkillableAfter) << Tick{};
    CHECK(group.finished_with(exit_code::kInfrastructure));
}

TEST_CASE("a program that cannot be executed fails with the shell's codes, and only started workers are waited for",
          "[agent]") {
    const auto [code, expected] =
        GENERATE(table<int, int>({{ENOENT, 127}, {ENOTDIR, 127}, {EACCES, 126}, {ENOEXEC, 126}}));
    Group group = running(4);
    group << SpawnFailed{LocalRank{1}, system_error("cannot execute x", code)};
    REQUIRE(group.actions.size() == 2);
    const auto& report = std::get<ReportFailure>(group.actions[0]);
    CHECK(report.status == exited(expected));
    CHECK_THAT(report.why, Catch::Contains("cannot execute x"));
    CHECK(group.state.running == std::set<LocalRank>{LocalRank{0}});
    group << WorkerExited{LocalRank{0}, killed_by(SIGTERM)} << GroupReaped{};
    CHECK(group.actions == Actions{SendMessage{GroupStopped{Generation{1}}}});
}

// ---- messages of the daemon ----

TEST_CASE("an abort stops the workers and is answered when they are reaped", "[agent]") {
    Group group = running() << AbortReceived{Generation{1}, "rank 0 was killed by SIGKILL"};
    CHECK(group.actions == Actions{SignalGroup{SIGTERM}});
    CHECK_THAT(group.reason, Catch::Contains("rank 0 was killed by SIGKILL"));
    group << WorkerExited{LocalRank{0}, exited(0)} << WorkerExited{LocalRank{1}, exited(0)};
    CHECK(group.actions == Actions{ReportTimeouts{LocalRank{1}}});  // no success: the group was stopped
    group << GroupReaped{};
    CHECK(group.actions == Actions{SendMessage{GroupStopped{Generation{1}}}});
}

TEST_CASE("an abort of a group that has ended is answered at once", "[agent]") {
    Group failed = stopping_after_failure() << WorkerExited{LocalRank{1}, killed_by(SIGTERM)} << GroupReaped{};
    failed << AbortReceived{Generation{1}, "a worker failed"};
    CHECK(failed.actions == Actions{SendMessage{GroupStopped{Generation{1}}}});

    Group succeeded = running(1) << WorkerExited{LocalRank{0}, exited(0)} << GroupReaped{};
    succeeded << AbortReceived{Generation{1}, "a node was lost"};
    CHECK(succeeded.actions == Actions{SendMessage{GroupStopped{Generation{1}}}});
    succeeded << Assigned{assignment(2)};
    CHECK(succeeded.actions == Actions{StartWorkers{assignment(2)}});
}

TEST_CASE("an abort while stopping neither signals again nor prolongs the grace", "[agent]") {
    Group group = stopping_after_failure();
    group.after(10s) << AbortReceived{Generation{1}, "rank 2 was killed by SIGSEGV"};
    CHECK(group.actions.empty());
    CHECK(group.state.deadline == kStart + kGrace);
}

TEST_CASE("the daemon's latest reason for a stop is the one that is reported", "[agent]") {
    Group group = stopping_after_failure() << AbortReceived{Generation{1}, "rank 2 exited with code 1"};
    CHECK(group.reason == "stopping the workers: rank 2 exited with code 1");
    group << AbortReceived{Generation{1}, "node n2 was lost"};
    CHECK(group.reason == "stopping the workers: node n2 was lost");
    group << StopSignal{SIGTERM} << AbortReceived{Generation{1}, "node n1 was interrupted by SIGTERM"};
    CHECK(group.reason.empty());  // the signal is the reason that the user knows
}

TEST_CASE("events of another generation are ignored", "[agent]") {
    Group group = Group() << Assigned{assignment(5)} << AbortReceived{Generation{4}, "late"};
    CHECK(group.actions.empty());
    group << Assigned{assignment(5)};
    CHECK(group.actions.empty());
    group << Assigned{assignment(3)};
    CHECK(group.actions.empty());
    CHECK(group.state.phase == Phase::kRunning);
}

TEST_CASE("a newer assignment replaces the running group, once that is reaped", "[agent]") {
    Group group = running(1) << Assigned{assignment(2)};
    CHECK(group.actions == Actions{SignalGroup{SIGTERM}});
    group << WorkerExited{LocalRank{0}, killed_by(SIGTERM)} << GroupReaped{};
    CHECK(group.actions == Actions{SendMessage{GroupStopped{Generation{1}}}, StartWorkers{assignment(2)}});
}

TEST_CASE("an assignment that is aborted before it could start is answered and forgotten", "[agent]") {
    Group group = running(1) << Assigned{assignment(2)} << AbortReceived{Generation{2}, "a node was lost"};
    CHECK(group.actions == Actions{SendMessage{GroupStopped{Generation{2}}}});
    group << WorkerExited{LocalRank{0}, killed_by(SIGTERM)} << GroupReaped{};
    CHECK(group.actions == Actions{SendMessage{GroupStopped{Generation{1}}}});
}

TEST_CASE("a verdict stops the workers and gives the exit code", "[agent]") {
    Group group = running(1) << JobFinished{verdict(Outcome::kWorkerFailed, 137)};
    CHECK(group.actions == Actions{SignalGroup{SIGTERM}});
    group << WorkerExited{LocalRank{0}, killed_by(SIGTERM)} << GroupReaped{};
    CHECK(group.finished_with(137));
    CHECK(std::get<Finish>(group.actions.back()).verdict == verdict(Outcome::kWorkerFailed, 137));
}

TEST_CASE("the loss of the daemon stops the workers and ends the agent with 69", "[agent]") {
    Group group = running(1) << DaemonLost{"connection closed", exit_code::kInfrastructure, "Start it again"};
    CHECK(group.actions == Actions{SignalGroup{SIGTERM}});
    group << WorkerExited{LocalRank{0}, killed_by(SIGTERM)} << GroupReaped{};
    CHECK(group.finished_with(exit_code::kInfrastructure));
    const auto& finish = std::get<Finish>(group.actions.back());
    CHECK(finish.why == "connection closed. The worker of this node was stopped");
    CHECK(finish.remedy == "Start it again");
}

TEST_CASE("the last line after the loss of the daemon counts workers only if there are any", "[agent]") {
    Group group = running(3) << WorkerExited{LocalRank{1}, killed_by(SIGSEGV)} << DaemonLost{"silent"};
    for (const int rank : {0, 2}) group << WorkerExited{LocalRank{rank}, killed_by(SIGTERM)};
    group << GroupReaped{};
    CHECK(std::get<Finish>(group.actions.back()).why == "silent. The 3 workers of this node were stopped");
    const Group idle = Group() << DaemonLost{"connection refused"};
    CHECK(std::get<Finish>(idle.actions.back()).why == "connection refused");
}

TEST_CASE("without workers the loss of the daemon ends the agent at once", "[agent]") {
    CHECK((Group() << DaemonLost{"connection refused"}).finished_with(exit_code::kInfrastructure));
}

TEST_CASE("the end of the connection after the verdict changes nothing", "[agent]") {
    Group group = running(1) << JobFinished{verdict(Outcome::kWorkerFailed, 3)} << DaemonLost{"connection closed"};
    CHECK(group.actions.empty());
    group << WorkerExited{LocalRank{0}, killed_by(SIGTERM)} << GroupReaped{};
    CHECK(group.finished_with(3));
}

TEST_CASE("the loss of the daemon after all workers succeeded leaves the job's end unknown", "[agent]") {
    Group group = running(1) << WorkerExited{LocalRank{0}, exited(0)} << GroupReaped{} << DaemonLost{"gone"};
    CHECK(group.finished_with(exit_code::kInfrastructure));
    CHECK_THAT(std::get<Finish>(group.actions.back()).why, Catch::Contains("exited with 0"));
}
