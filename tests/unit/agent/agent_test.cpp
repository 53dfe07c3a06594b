// A whole agent with real workers, against a FakeDaemon: starts, failures, aborts, signals.
#include "agent/agent.hpp"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "common/clock.hpp"
#include "tests/catch.hpp"
#include "tests/unit/agent/agent_job.hpp"

using namespace ddprun;
using namespace ddprun::agent;
using namespace ddprun::protocol;
using namespace agent_test;
using namespace std::chrono_literals;
using Catch::Contains;

TEST_CASE("an agent joins, runs its workers, reports success and ends with the verdict", "[agent]") {
    FakeDaemon daemon;
    AgentProcess agent(config(daemon, {"env=RANK", "env=TORCHELASTIC_RUN_ID"}));
    const Join join = daemon.welcome();
    CHECK(join.host == "n12");
    CHECK(join.node.size() == 32);
    CHECK(join.pid > 0);
    CHECK(join.max_nodes == 3);
    CHECK(join.programs == std::vector<Program>{{"default", 2, 4}});
    CHECK(join.node_rank == 1);
    daemon.send(assignment(1));
    CHECK(daemon.expect<GroupSucceeded>().generation == Generation{1});
    daemon.send(finished(Outcome::kSucceeded, 0));
    CHECK(daemon.closed());
    CHECK(agent.end().exit_code() == 0);
    const std::string out = agent.out();
    CHECK_THAT(out, Contains("2\n") && Contains("3\n") && Contains("run\n"));
    CHECK(agent.err() == "[ddprun] this is node 1 of 2 (n12): ranks 2-3 of 4, generation 1\n");
    CHECK(agent.mark().none_left());
}

TEST_CASE("a failing worker is reported with its evidence, its sibling is stopped, the verdict is shown", "[agent]") {
    FakeDaemon daemon;
    AgentProcess agent(config(daemon, {R"(error-file={"message": "ValueError: ${local_rank}"})", "err=about to fail\n",
                                       "session", "exit=3"}));
    daemon.welcome();
    daemon.send(assignment(1));
    const WorkerFailed failed = daemon.expect<WorkerFailed>();
    CHECK(failed.generation == Generation{1});
    CHECK(failed.failure.status.number == 3);
    CHECK(number(failed.failure.rank) == 2 + number(failed.failure.local_rank));
    CHECK(failed.failure.host == "n12");
    CHECK(failed.failure.pid > 0);
    CHECK(failed.failure.message == "ValueError: " + std::to_string(number(failed.failure.local_rank)));
    CHECK(failed.failure.last_lines == std::vector<std::string>{"about to fail"});
    AgentMessage last = daemon.next();
    if (std::holds_alternative<WorkerFailed>(last)) last = daemon.next();  // its sibling did the same
    CHECK(std::get<GroupStopped>(last).generation == Generation{1});
    Finished end = finished(Outcome::kWorkerFailed, 3);
    end.verdict.culprit = failed.failure;
    daemon.send(end);
    CHECK(agent.end().exit_code() == 3);
    CHECK_THAT(agent.err(),
               Contains("agent_test_shapes FAILED") && Contains("exited with code 3") && Contains("the test says so"));
    CHECK(agent.mark().none_left());
}

TEST_CASE("an error file that only repeats how its worker ended gives no message", "[agent]") {
    FakeDaemon daemon;
    AgentProcess agent(config(daemon, {R"(error-file={"message": "exited with code 3"})", "exit=3"}));
    daemon.welcome();
    daemon.send(assignment(1));
    CHECK(daemon.expect<WorkerFailed>().failure.message.empty());
}

TEST_CASE("an abort is followed by a new generation", "[agent]") {
    FakeDaemon daemon;
    AgentProcess agent(config(daemon, {"env=TORCHELASTIC_RESTART_COUNT", "wait"}));
    daemon.welcome();
    daemon.send(assignment(1));
    CHECK(read_line(agent.out_.read_end.get()) == "0");
    CHECK(read_line(agent.out_.read_end.get()) == "0");
    daemon.send(Abort{Generation{1}, "rank 0 was killed by SIGKILL"});
    CHECK(daemon.expect<GroupStopped>().generation == Generation{1});
    CHECK(agent.mark().processes().empty());  // the agent itself was forked, not executed, and has no mark
    daemon.send(assignment(2));
    CHECK(read_line(agent.out_.read_end.get()) == "1");
    CHECK(read_line(agent.out_.read_end.get()) == "1");
    daemon.send(finished(Outcome::kStopped, 143));
    CHECK(agent.end().exit_code() == 143);
    CHECK(agent.mark().none_left());
}

TEST_CASE("an abort stops the start of many workers", "[agent]") {
    FakeDaemon daemon;
    AgentConfig c = config(daemon, {"wait"});
    c.programs[0].slots = 300;
    AgentProcess agent(std::move(c));
    daemon.welcome();
    Assignment many = assignment(1);
    many.world_size = 302;
    daemon.send(many);
    daemon.send(Abort{Generation{1}, "a test"});
    CHECK(daemon.expect<GroupStopped>().generation == Generation{1});
    CHECK(agent.mark().processes().empty());
    daemon.send(finished(Outcome::kStopped, 143));
    CHECK(agent.end().exit_code() == 143);
    CHECK(agent.mark().none_left());
}

TEST_CASE("a program that cannot be executed is a failure with the shell's code", "[agent]") {
    FakeDaemon daemon;
    AgentConfig c = config(daemon, {});
    c.programs[0].command = {"/nonexistent/trainer"};
    AgentProcess agent(std::move(c));
    daemon.welcome();
    daemon.send(assignment(1));
    const WorkerFailed failed = daemon.expect<WorkerFailed>();
    CHECK(failed.failure.status == ExitStatus{ExitStatus::Kind::kExited, 127, false});
    CHECK(failed.failure.pid == 0);
    CHECK_THAT(failed.failure.message, Contains("/nonexistent/trainer"));
    CHECK(daemon.expect<GroupStopped>().generation == Generation{1});
}

TEST_CASE("SIGTERM drains a node: leave, grace, stopped, 143", "[agent]") {
    FakeDaemon daemon;
    AgentProcess agent(config(daemon, {"signals", "out=saved\n"}));
    daemon.welcome();
    daemon.send(assignment(1));
    REQUIRE(read_line(agent.out_.read_end.get()) == "listening");
    REQUIRE(read_line(agent.out_.read_end.get()) == "listening");
    agent.signal(SIGTERM);
    CHECK(daemon.expect<Leave>().signal == SIGTERM);
    CHECK(daemon.expect<GroupStopped>().generation == Generation{1});
    CHECK(daemon.closed());
    CHECK(agent.end().exit_code() == 143);
    CHECK_THAT(agent.out(), Contains("saved\n"));
    CHECK(agent.mark().none_left());
}

TEST_CASE("a second interrupt kills slow workers", "[agent]") {
    FakeDaemon daemon;
    AgentConfig c = config(daemon, {"stubborn", "wait"});
    c.grace = 10min;
    AgentProcess agent(std::move(c));
    daemon.welcome();
    daemon.send(assignment(1));
    REQUIRE(eventually([&] { return agent.mark().processes().size() == 4; }));
    agent.signal(SIGINT);
    CHECK(daemon.expect<Leave>().signal == SIGINT);
    const auto first = std::chrono::steady_clock::now();
    REQUIRE(eventually([&] { return std::chrono::steady_clock::now() - first > 550ms; }));
    agent.signal(SIGINT);
    CHECK(daemon.expect<GroupStopped>().generation == Generation{1});
    CHECK(agent.end().exit_code() == 130);
    CHECK(agent.mark().none_left());
}

TEST_CASE("the grace is a maximum: stubborn workers are killed at its end", "[agent]") {
    FakeDaemon daemon;
    AgentConfig c = config(daemon, {"stubborn", "wait"});
    c.grace = 300ms;
    AgentProcess agent(std::move(c));
    daemon.welcome();
    daemon.send(assignment(1));
    REQUIRE(eventually([&] { return agent.mark().processes().size() == 4; }));
    daemon.send(finished(Outcome::kInfrastructure, 69));
    CHECK(agent.end().exit_code() == 69);
    CHECK_THAT(agent.err(), Contains("0.3 s"));
    CHECK(agent.mark().none_left());
}

TEST_CASE("signals work before there is a daemon", "[agent]") {
    AgentConfig c;
    {
        FakeDaemon closed;  // its port refuses connections afterwards
        c = config(closed, {"wait"});
    }
    AgentProcess agent(std::move(c));
    REQUIRE(agent.catches(SIGHUP));  // which the test framework does not catch
    agent.signal(SIGTERM);
    const ExitStatus status = agent.end();
    INFO(to_string(status));
    CHECK(status == ExitStatus{ExitStatus::Kind::kExited, 143, false});
}

TEST_CASE("after the loss of its guard an agent kills the workers at once", "[agent]") {
    FakeDaemon daemon;
    Pipe lifeline;
    AgentConfig c = config(daemon, {"stubborn", "session", "wait"});
    c.grace = 10min;
    c.guard_pipe = std::move(lifeline.read_end);
    AgentProcess agent(std::move(c), lifeline.write_end.get());
    daemon.welcome();
    daemon.send(assignment(1));
    REQUIRE(eventually([&] { return agent.mark().processes().size() == 6; }));
    lifeline.write_end.reset();
    CHECK(daemon.closed());  // without another message
    CHECK(agent.end().exit_code() == 69);
    CHECK(agent.mark().none_left());
}

TEST_CASE("supervision goes on while the console takes nothing", "[agent]") {
    FakeDaemon daemon;
    AgentProcess agent(config(daemon, {"err=flooding\n", "flood"}));
    daemon.welcome();
    daemon.send(assignment(1));
    CHECK_THAT(read_line(agent.err_.read_end.get()), Contains("this is node"));
    CHECK(read_line(agent.err_.read_end.get()) == "flooding");
    CHECK(read_line(agent.err_.read_end.get()) == "flooding");
    // When the workers use no more CPU time, the pipe that is not read is full and the agent has stopped reading.
    const auto cpu_time = [](pid_t pid) {
        std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
        std::string field;
        for (int i = 0; i < 13; ++i) file >> field;
        long user = 0, system = 0;
        file >> user >> system;
        return user + system;
    };
    const std::vector<pid_t> workers = agent.mark().processes();
    REQUIRE(workers.size() == 2);
    long before = -1;
    int unchanged = 0;
    REQUIRE(eventually([&] {
        const long now = cpu_time(workers[0]) + cpu_time(workers[1]);
        unchanged = now == std::exchange(before, now) ? unchanged + 1 : 0;
        return unchanged == 40;
    }));
    ::kill(workers[1], SIGKILL);
    CHECK(daemon.expect<WorkerFailed>().failure.pid == workers[1]);
    CHECK(daemon.expect<GroupStopped>().generation == Generation{1});
    daemon.send(finished(Outcome::kStopped, 143));
    CHECK(daemon.closed());
    CHECK_THAT(agent.out(), Contains("more than a reader takes\n"));  // the end of the agent has waited for the reader
    CHECK(agent.end().exit_code() == 143);
}

TEST_CASE("an agent answers a request with the flight records of its workers, one by one", "[agent]") {
    FakeDaemon daemon;
    AgentProcess agent(config(daemon, {"out=up\n", "wait"}));
    daemon.welcome();
    daemon.send(assignment(1));
    REQUIRE(read_line(agent.out_.read_end.get()) == "up");
    REQUIRE(read_line(agent.out_.read_end.get()) == "up");
    daemon.send(RequestRecords{Generation{0}, 4, {}, 16});  // of an older group: no answer
    daemon.send(RequestRecords{Generation{1}, 5, {}, 16});
    for (const int rank : {2, 3}) {
        const RecordReply reply = daemon.expect<RecordReply>();
        CHECK(reply.generation == Generation{1});
        CHECK(reply.request == 5);
        CHECK(reply.last == (rank == 3));
        CHECK(reply.record.rank == Rank{rank});
        CHECK(reply.record.host == "n12");
        CHECK(reply.record.process == ProcessState::kRunning);
        CHECK(reply.record.pid > 0);
    }
    daemon.send(RequestRecords{Generation{1}, 6, Rank{3}, 16});
    const RecordReply one = daemon.expect<RecordReply>();
    CHECK(one.request == 6);
    CHECK(one.last);
    CHECK(one.record.rank == Rank{3});
    daemon.send(finished(Outcome::kStopped, 143));
    CHECK(agent.end().exit_code() == 143);
    CHECK(agent.mark().none_left());
}

TEST_CASE("two programs have consecutive local ranks, and ranks within their roles", "[agent]") {
    FakeDaemon daemon;
    AgentConfig c = config(daemon, {"env=ROLE_NAME", "env=ROLE_RANK", "exit=3"});
    c.programs[0].slots = 1;
    c.programs.push_back({.command = {shapes(), "out=serving\n", "wait"}, .role = "server", .name = "serve.py"});
    AgentProcess agent(std::move(c));
    CHECK(daemon.welcome().programs == std::vector<Program>{{"default", 1, 4}, {"server", 1, 0}});
    Assignment two = assignment(1);
    two.program_roles = {{5, 7}, {0, 1}};
    daemon.send(two);
    const WorkerFailed failed = daemon.expect<WorkerFailed>();
    CHECK(failed.failure.rank == Rank{2});
    CHECK(failed.failure.program == "agent_test_shapes");
    Finished end = finished(Outcome::kWorkerFailed, 3);
    end.verdict.culprit = failed.failure;
    end.verdict.culprit->role = "default";
    daemon.send(end);
    CHECK(agent.end().exit_code() == 3);
    // The line of the other program may be between the two.
    CHECK_THAT(agent.out(), Contains("default\n") && Contains("5\n"));
    CHECK_THAT(agent.err(), Contains("\nagent_test_shapes FAILED\n") && Contains("\n  role        : default\n"));
    CHECK(agent.mark().none_left());
}
