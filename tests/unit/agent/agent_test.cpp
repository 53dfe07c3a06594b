// A whole agent, with real workers, against a daemon that the test plays.
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
using namespace ddprun::coordinator;
using namespace agent_test;
using namespace std::chrono_literals;
using Catch::Contains;

TEST_CASE("an agent introduces itself, runs its workers, reports success and ends with the verdict", "[agent]") {
    FakeDaemon daemon;
    AgentProcess agent(config(daemon, {"env=RANK", "env=TORCHELASTIC_RUN_ID"}));
    const Join join = daemon.welcome();
    CHECK(join.host == "n12");
    CHECK(join.node.size() == 32);
    CHECK(join.pid > 0);
    CHECK(join.slots == 2);
    CHECK(join.max_nodes == 3);
    CHECK(join.max_restarts == 4);
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

TEST_CASE("an abort is followed by a new generation", "[agent]") {
    FakeDaemon daemon;
    AgentProcess agent(config(daemon, {"env=TORCHELASTIC_RESTART_COUNT", "wait"}));
    daemon.welcome();
    daemon.send(assignment(1));
    CHECK(read_line(agent.out_.read_end.get()) == "0");
    CHECK(read_line(agent.out_.read_end.get()) == "0");
    daemon.send(Abort{Generation{1}, "rank 0 was killed by SIGKILL"});
    CHECK(daemon.expect<GroupStopped>().generation == Generation{1});
    CHECK(agent.mark().processes().empty());  // the agent itself was forked, not executed, and carries no mark
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
    c.slots = 300;
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
    c.command = {"/nonexistent/trainer"};
    AgentProcess agent(std::move(c));
    daemon.welcome();
    daemon.send(assignment(1));
    const WorkerFailed failed = daemon.expect<WorkerFailed>();
    CHECK(failed.failure.status == ExitStatus{ExitStatus::Kind::kExited, 127, false});
    CHECK(failed.failure.pid == 0);
    CHECK_THAT(failed.failure.message, Contains("/nonexistent/trainer"));
    CHECK(daemon.expect<GroupStopped>().generation == Generation{1});
}

TEST_CASE("SIGTERM drains a node: goodbye, grace, stopped, 143", "[agent]") {
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

TEST_CASE("a second interrupt kills workers that take their time", "[agent]") {
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
        FakeDaemon gone;  // nobody listens there afterwards
        c = config(gone, {"wait"});
    }
    AgentProcess agent(std::move(c));
    REQUIRE(agent.catches(SIGHUP));  // which the test framework leaves alone
    agent.signal(SIGTERM);
    const ExitStatus status = agent.end();
    INFO(to_string(status));
    CHECK(status == ExitStatus{ExitStatus::Kind::kExited, 143, false});
}

TEST_CASE("a daemon that is not there in time is an infrastructure failure that says where", "[agent]") {
    AgentConfig c;
    {
        FakeDaemon gone;
        c = config(gone, {"wait"});
    }
    const std::string port = std::to_string(c.endpoint.port);
    c.connect_timeout = 300ms;
    AgentProcess agent(std::move(c));
    CHECK(agent.end().exit_code() == 69);
    CHECK_THAT(agent.err(), Contains("127.0.0.1:" + port));
}

TEST_CASE("an agent whose connection breaks connects again and tells what the daemon may have missed", "[agent]") {
    FakeDaemon daemon;
    AgentProcess agent(config(daemon, {"out=up\n", "wait"}));
    Join join = daemon.welcome();
    CHECK_FALSE(join.session);
    join.session = FakeDaemon::kSession;
    daemon.send(assignment(1));
    REQUIRE(read_line(agent.out_.read_end.get()) == "up");
    REQUIRE(read_line(agent.out_.read_end.get()) == "up");
    daemon.drop();
    SECTION("the workers go on") {
        const Rejected not_yet{"a node with that id is connected already", true};
        CHECK(daemon.refuse(not_yet) == join);
        CHECK(daemon.refuse(not_yet) == join);
        CHECK(daemon.welcome() == join);
        daemon.send(assignment(1));  // repeated
        daemon.expect_heartbeat();
        CHECK(agent.mark().processes().size() == 2);
        daemon.send(Abort{Generation{1}, "a test"});
        CHECK(daemon.expect<GroupStopped>().generation == Generation{1});
    }
    SECTION("a worker fails meanwhile") {
        const std::vector<pid_t> workers = agent.mark().processes();
        ::kill(workers.front(), SIGKILL);
        REQUIRE(eventually([&] { return agent.mark().processes().empty(); }));
        CHECK(daemon.welcome() == join);
        CHECK(daemon.expect<WorkerFailed>().failure.pid == workers.front());
        CHECK(daemon.expect<GroupStopped>().generation == Generation{1});
        daemon.send(assignment(2));
        CHECK(read_line(agent.out_.read_end.get()) == "up");
        CHECK(read_line(agent.out_.read_end.get()) == "up");
        daemon.drop();
        CHECK(daemon.welcome() == join);
        daemon.send(Abort{Generation{2}, "a test"});
        CHECK(daemon.expect<GroupStopped>().generation == Generation{2});  // nothing of generation 1 any more
    }
    daemon.send(finished(Outcome::kStopped, 143));
    CHECK(daemon.closed());
    CHECK(agent.end().exit_code() == 143);
    CHECK_THAT(agent.err(), Contains("connecting again") && Contains("connected to the rendezvous daemon again"));
    CHECK(agent.mark().none_left());
}

TEST_CASE("an agent that is not taken again ends, and its command was not wrong", "[agent]") {
    FakeDaemon daemon;
    AgentProcess agent(config(daemon, {"out=up\n", "wait"}));
    daemon.welcome();
    daemon.send(assignment(1));
    REQUIRE(read_line(agent.out_.read_end.get()) == "up");
    daemon.drop();
    daemon.refuse(Rejected{"the daemon that its job began with is gone"});
    CHECK(agent.end().exit_code() == 69);
    CHECK_THAT(agent.err(), Contains("does not take this node again: the daemon that its job began with is gone"));
    CHECK(agent.mark().none_left());
}

TEST_CASE("an agent whose connections break again and again does not make new ones without a pause", "[agent]") {
    FakeDaemon daemon;
    const TimePoint begin = Clock::now();
    AgentProcess agent(config(daemon, {"wait"}));
    for (int i = 0; i < 5; ++i) {
        daemon.welcome();
        daemon.drop();
    }
    daemon.welcome();
    CHECK(Clock::now() - begin >= 1s);  // five times 200 ms
    daemon.send(finished(Outcome::kStopped, 143));
    CHECK(agent.end().exit_code() == 143);
}

TEST_CASE("an agent that leaves says so again on the next connection", "[agent]") {
    FakeDaemon daemon;
    AgentConfig c = config(daemon, {"stubborn", "wait"});
    c.grace = 3s;  // in which the connection is made again
    AgentProcess agent(std::move(c));
    daemon.welcome();
    daemon.send(assignment(1));
    REQUIRE(eventually([&] { return agent.mark().processes().size() == 4; }));
    agent.signal(SIGTERM);
    CHECK(daemon.expect<Leave>().signal == SIGTERM);
    daemon.drop();
    daemon.welcome();
    CHECK(daemon.expect<Leave>().signal == SIGTERM);
    CHECK(daemon.expect<GroupStopped>().generation == Generation{1});
    CHECK(agent.end().exit_code() == 143);
    CHECK(agent.mark().none_left());
}

TEST_CASE("a daemon that does not come back stops the workers", "[agent]") {
    FakeDaemon daemon;
    AgentProcess agent(config(daemon, {"out=up\n", "wait"}));
    daemon.welcome(2s);
    daemon.send(assignment(1));
    REQUIRE(read_line(agent.out_.read_end.get()) == "up");
    daemon.drop();
    CHECK(agent.end().exit_code() == 69);
    CHECK_THAT(agent.err(), Contains("lost the rendezvous daemon"));
    CHECK(agent.mark().none_left());
}

TEST_CASE("a daemon that says nothing counts as lost after the agreed time", "[agent]") {
    FakeDaemon daemon;
    AgentProcess agent(config(daemon, {"wait"}));
    daemon.welcome(300ms);
    daemon.expect_heartbeat();
    CHECK(agent.end().exit_code() == 69);
    CHECK_THAT(agent.err(), Contains("nothing for 0.3 s"));
}

TEST_CASE("a rejected agent passes on the reason and ends as after wrong usage", "[agent]") {
    FakeDaemon daemon;
    AgentProcess agent(config(daemon, {"wait"}));
    daemon.refuse(Rejected{"this daemon serves the job 'other'"});
    CHECK(agent.end().exit_code() == 2);
    CHECK_THAT(agent.err(), Contains("does not take this node: this daemon serves the job 'other'"));
}

TEST_CASE("a lost guard costs the workers their lives at once", "[agent]") {
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
    CHECK(daemon.closed());  // without another word
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
    // The pipe to nobody is full, and the agent has stopped reading, when the workers use no more CPU time.
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
    CHECK_THAT(agent.out(), Contains("more than anybody reads\n"));  // which the agent's end has waited for
    CHECK(agent.end().exit_code() == 143);
}
