// The connection of a whole agent to a daemon that the test plays: lost, made again, rejected, silent.

#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.hpp"
#include "tests/catch.hpp"
#include "tests/unit/agent/agent_job.hpp"

using namespace ddprun;
using namespace ddprun::agent;
using namespace ddprun::protocol;
using namespace agent_test;
using namespace std::chrono_literals;
using Catch::Contains;

TEST_CASE("a daemon that cannot be reached in time is an infrastructure failure that names its address", "[agent]") {
    AgentConfig c;
    {
        FakeDaemon closed;
        c = config(closed, {"wait"});
    }
    const std::string port = std::to_string(c.endpoint.port);
    c.connect_timeout = 300ms;
    AgentProcess agent(std::move(c));
    CHECK(agent.end().exit_code() == 69);
    CHECK_THAT(agent.err(), Contains("127.0.0.1:" + port));
}

TEST_CASE("an agent that meets the daemon of a job that is over waits for that of the next", "[agent]") {
    std::optional<FakeDaemon> daemon(std::in_place);
    AgentConfig c = config(*daemon, {"wait"});
    const Rejected over{"the job is over: every worker exited with code 0", true};
    SECTION("which comes") {
        AgentProcess agent(std::move(c));
        const Join join = daemon->refuse(over);
        CHECK(daemon->refuse(over) == join);
        CHECK(daemon->welcome() == join);
        daemon->send(finished(Outcome::kStopped, 143));
        CHECK(agent.end().exit_code() == 143);
        CHECK_THAT(agent.err(), Contains("the job is over") && Contains("trying again") && Contains("connected"));
    }
    SECTION("which does not come") {
        c.connect_timeout = 2s;
        AgentProcess agent(std::move(c));
        (void)daemon->refuse(over);
        daemon.reset();
        CHECK(agent.end().exit_code() == 69);
        CHECK_THAT(agent.err(),
                   Contains("--rdzv-endpoint. Before that, the daemon of another job rejected this node: the job") &&
                       Contains("Start the command again when that job has ended"));
    }
}

TEST_CASE("an agent that a job with all its nodes rejects for now is refused when no node is lost in that time",
          "[agent]") {
    FakeDaemon daemon;
    AgentProcess agent(config(daemon, {"wait"}));
    Rejected full{"the job has all its nodes", true, 600s};
    const Join join = daemon.refuse(full);
    SECTION("and none is lost") {
        full.try_again = false;  // as a daemon rejects at the end of that time
        CHECK(daemon.refuse(full) == join);
        CHECK(agent.end().exit_code() == exit_code::kUsage);
        CHECK_THAT(agent.err(),
                   Contains("tries again for 600 s in case a node of that job is lost: the job has all its nodes"));
    }
    SECTION("and one is lost") {
        CHECK(daemon.welcome() == join);
        daemon.send(finished(Outcome::kStopped, 143));
        CHECK(agent.end().exit_code() == 143);
    }
}

TEST_CASE("the time in which a job may lose a node ends", "[agent]") {
    std::optional<FakeDaemon> daemon(std::in_place);
    AgentProcess agent(config(*daemon, {"wait"}));
    const Rejected full{"the job has all its nodes", true, 1ms};
    const Join join = daemon->refuse(full);
    SECTION("and none was lost") {
        CHECK(daemon->refuse(full) == join);
        CHECK(agent.end().exit_code() == exit_code::kUsage);
    }
    SECTION("with the job") {
        daemon.reset();
        CHECK(agent.end().exit_code() == exit_code::kInfrastructure);
        CHECK_THAT(agent.err(), Contains("the daemon of another job rejected this node: the job has all its nodes"));
    }
}

TEST_CASE("an agent whose connection breaks connects again and repeats the reports that the daemon may have missed",
          "[agent]") {
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

TEST_CASE("an agent that is rejected on its second connection ends with 69, for its command is not wrong", "[agent]") {
    FakeDaemon daemon;
    AgentProcess agent(config(daemon, {"out=up\n", "wait"}));
    daemon.welcome();
    daemon.send(assignment(1));
    REQUIRE(read_line(agent.out_.read_end.get()) == "up");
    daemon.drop();
    daemon.refuse(Rejected{"the daemon that its job began with has ended"});
    CHECK(agent.end().exit_code() == 69);
    CHECK_THAT(agent.err(), Contains("rejects this node again: the daemon that its job began with has ended"));
    CHECK(agent.mark().none_left());
}

TEST_CASE("an agent whose connections break repeatedly pauses before each new one", "[agent]") {
    FakeDaemon daemon;
    const TimePoint begin = Clock::now();
    AgentProcess agent(config(daemon, {"wait"}));
    for (int i = 0; i < 5; ++i) {
        daemon.welcome();
        daemon.drop();
    }
    daemon.welcome();
    CHECK(Clock::now() - begin >= 500ms);  // five times 100 ms
    daemon.send(finished(Outcome::kStopped, 143));
    CHECK(agent.end().exit_code() == 143);
}

TEST_CASE("an agent that leaves repeats that on the next connection", "[agent]") {
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

TEST_CASE("a silent daemon counts as lost after the agreed time", "[agent]") {
    FakeDaemon daemon;
    AgentProcess agent(config(daemon, {"wait"}));
    daemon.welcome(300ms);
    daemon.expect_heartbeat();
    CHECK(agent.end().exit_code() == 69);
    const std::string err = agent.err();
    INFO(err);
    const std::string text = " has confirmed nothing for ";
    const auto at = err.find(text);
    REQUIRE(at != std::string::npos);
    CHECK(std::stod(err.substr(at + text.size())) >= 0.2);  // more on a busy machine
}

TEST_CASE("a rejected agent prints the reason and ends as after wrong usage", "[agent]") {
    FakeDaemon daemon;
    AgentProcess agent(config(daemon, {"wait"}));
    daemon.refuse(Rejected{"this daemon serves the job 'other'"});
    CHECK(agent.end().exit_code() == 2);
    CHECK_THAT(agent.err(), Contains("rejects this node: this daemon serves the job 'other'"));
}
