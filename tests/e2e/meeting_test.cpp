// Nodes that meet in a directory or in etcd: no node is named on the command line.

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <vector>

#include "tests/catch.hpp"
#include "tests/e2e/etcd.hpp"
#include "tests/e2e/hosts.hpp"
#include "tests/e2e/meeting.hpp"
#include "tests/e2e/process.hpp"

using namespace e2e;

namespace {

/// Kills processes of one job at once: none of them does anything about the end of another.
void kill_together(const std::vector<pid_t>& pids) {
    for (const int signal : {SIGSTOP, SIGKILL})
        for (const pid_t pid : pids) ::kill(pid, signal);
}

/// Starts a job of one node, waits until its worker runs, and kills all its processes, the daemon, too.
void run_and_kill(const Sandbox& sandbox, const Words& options) {
    Process doomed(sandbox, {.argv = ddprun_line(options, "echo started; exec sleep 1000")});
    REQUIRE(eventually(Seconds(30), [&] { return doomed.out() == "started\n"; }));
    std::vector<pid_t> pids = sandbox.pids(bin().string());
    std::ranges::copy(sandbox.pids("sleep 1000"), std::back_inserter(pids));
    kill_together(pids);
    (void)doomed.wait(Seconds(10));
    REQUIRE(eventually(Seconds(10), [&] { return sandbox.pids(bin().string()).empty(); }));
}

}  // namespace

TEST_CASE("nodes that are started at once meet in a directory, job after job", "[e2e]") {
    const Sandbox sandbox("meeting-directory");
    const SharedDirectory shared(sandbox);
    const int nodes = GENERATE(2, 8);
    run_job(sandbox, shared.options(nodes), nodes);
    CHECK(shared.names() == Names{"ddprun-job.2"});  // withdrawn
    run_job(sandbox, shared.options(nodes), nodes);
    CHECK(shared.names() == Names{"ddprun-job.4"});
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("the address of a killed job is replaced by one of the nodes that find it", "[e2e]") {
    const Sandbox sandbox("meeting-stale");
    const SharedDirectory shared(sandbox);
    run_and_kill(sandbox, shared.options(1));
    REQUIRE(shared.names() == Names{"ddprun-job.1"});
    const int nodes = GENERATE(1, 8);
    const std::string errors = run_job(sandbox, shared.options(nodes), nodes);
    CHECK_THAT(errors, Catch::Contains("replaced the address"));
    CHECK(errors.find("replaced the address") == errors.rfind("replaced the address"));
    CHECK(shared.names() == Names{"ddprun-job.3"});
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a job that is started again right after kill -9 waits for the daemon of the killed one", "[e2e]") {
    const Sandbox sandbox("meeting-again");
    const SharedDirectory shared(sandbox);
    Process doomed(sandbox, {.argv = ddprun_line(shared.options(1), "echo started; exec sleep 1000")});
    REQUIRE(eventually(Seconds(30), [&] { return doomed.out() == "started\n"; }));
    const auto daemons = sandbox.pids("ddprund");
    auto others = sandbox.pids(bin().string());
    std::erase_if(others, [&](pid_t pid) { return std::ranges::count(daemons, pid) > 0; });
    kill_together(others);
    const std::string errors = run_job(sandbox, shared.options(1), 1);
    CHECK_THAT(errors, Catch::Contains("replaced the address"));
    (void)doomed.wait(Seconds(10));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a node that is started later finds the running job and joins it", "[e2e]") {
    const Sandbox sandbox("meeting-late");
    const SharedDirectory shared(sandbox);
    Words options = shared.options(2, {"--rdzv-conf", "last_call_timeout=0.1", "--max-restarts", "1"});
    options[1] = "1:2";
    const std::string script = "echo world $WORLD_SIZE; [ $WORLD_SIZE = 2 ] || exec sleep 1000";
    Process first(sandbox, {.argv = ddprun_line(options, script)});
    REQUIRE(eventually(Seconds(30), [&] { return first.out() == "world 1\n"; }));
    Process second(sandbox, {.argv = ddprun_line(options, script)});
    CHECK(second.wait(Seconds(60)).exit_code() == 0);
    CHECK(first.wait(Seconds(30)).exit_code() == 0);
    CAPTURE(first.err(), second.err());
    CHECK(first.out() == "world 1\nworld 2\n");
    CHECK(second.out() == "world 2\n");
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a user's --master-port is that of the daemon", "[e2e]") {
    const Sandbox sandbox("meeting-port");
    const SharedDirectory shared(sandbox);
    const std::string port = std::to_string(free_port());
    Process agent(sandbox,
                  {.argv = ddprun_line(shared.options(1, {"--master-port", port}), "echo started; exec sleep 1000")});
    REQUIRE(eventually(Seconds(30), [&] { return agent.out() == "started\n"; }));
    CHECK_THAT(read_file(shared.path / "ddprun-job.1"), Catch::Contains(":" + port + "\""));
    agent.signal(SIGTERM);
    (void)agent.wait(Seconds(30));
    CHECK(sandbox.leftovers() == "");
    CHECK(shared.names() == Names{"ddprun-job.2"});
}

TEST_CASE("Ctrl-C while a node waits for an address ends it at once", "[e2e]") {
    const Sandbox sandbox("meeting-wait");
    const SharedDirectory shared(sandbox);
    Process agent(sandbox, {.argv = ddprun_line(shared.options(2, {"--rdzv-conf", "is_host=0"}))});
    REQUIRE(eventually(Seconds(30), [&] { return agent.err().find("waiting: no daemon") != std::string::npos; }));
    agent.signal(SIGINT);
    CHECK(agent.wait(Seconds(20)).exit_code() == 128 + SIGINT);  // and not after the minutes that it would wait
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a directory that is missing is a usage error before anything starts", "[e2e]") {
    const Sandbox sandbox("meeting-missing");
    const auto outcome =
        run(sandbox, {.argv = ddprun_line({"--rdzv-dir", (sandbox.path() / "absent").string(), "--rdzv-id", "x"})});
    CHECK(outcome.status.exit_code() == 2);
    CHECK(outcome.err == fmt::format("ddprun: cannot meet in --rdzv-dir {}/absent: No such file or directory. Make a "
                                     "directory on a file system that all nodes share, and pass it to --rdzv-dir.\n",
                                     sandbox.path().string()));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("an etcd that cannot be reached is an error with its address", "[e2e]") {
    const Sandbox sandbox("meeting-no-etcd");
    const std::string server = fmt::format("127.0.0.1:{}", free_port());
    const auto outcome =
        run(sandbox, {.argv = ddprun_line(etcd_options(server, 2, {"--rdzv-conf", "read_timeout=1.5"}))});
    INFO(outcome.err);
    CHECK(outcome.status.exit_code() == 69);
    CHECK_THAT(outcome.err, Catch::Contains("waiting for etcd"));
    CHECK_THAT(outcome.err, Catch::Contains("ddprun: cannot reach etcd at " + server + " for 1.5 s"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("nodes meet in a real etcd, which keeps nothing of an ended job", "[e2e]") {
    if (no_etcd_here()) return;
    const Sandbox sandbox("meeting-etcd");
    {
        const Etcd etcd(sandbox);
        const std::string servers = etcd.endpoints();
        const auto count = [&] {  // of all keys
            return etcd.call({"call", "1", "kv/range", R"({"key":"AA==","range_end":"AA==","count_only":true})"});
        };
        run_job(sandbox, etcd_options(servers, 2), 2);
        CHECK(count().find("\"count\"") == std::string::npos);
        run_job(sandbox, etcd_options(servers, 8), 8);

        run_and_kill(sandbox, etcd_options(servers, 1));
        CHECK(count().find("\"count\"") != std::string::npos);
        const std::string errors = run_job(sandbox, etcd_options(servers, 8), 8);
        CHECK_THAT(errors, Catch::Contains("replaced the address") && Catch::Contains("key 'ddprun/job'"));
        CHECK(errors.find("replaced the address") == errors.rfind("replaced the address"));
        CHECK(count().find("\"count\"") == std::string::npos);

        const std::string down = fmt::format("127.0.0.1:{}", free_port());
        run_job(sandbox, etcd_options(down + "," + servers, 2, {"--rdzv-conf", "etcd_prefix=/torchelastic/p2p"}), 2);
        const auto user = run(sandbox, {.argv = ddprun_line(etcd_options(servers, 1, {"--rdzv-conf", "username=u"})),
                                        .env = {{"DDPRUN_ETCD_PASSWORD", "p"}}});
        CHECK(user.status.exit_code() == 69);
        CHECK_THAT(user.err,
                   Catch::Contains("cannot log in to etcd") && Catch::Contains("authentication is not enabled"));
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("nodes on different hosts meet in a directory that they share", "[e2e]") {
    if (no_hosts_here()) return;
    const Sandbox sandbox("meeting-hosts");
    const SharedDirectory shared(sandbox);
    {
        const Hosts hosts(sandbox, 3);
        const Words line = ddprun_line(shared.options(3));
        std::vector<std::unique_ptr<Process>> agents;
        for (const char* host : {"n1", "n2", "n3"})
            agents.push_back(std::make_unique<Process>(sandbox, hosts.on(host, line)));
        Names lines;
        for (const auto& agent : agents) {
            const auto status = agent->wait(Seconds(60));
            INFO(agent->err());
            CHECK(status.exit_code() == 0);
            lines.insert(agent->out());
        }
        CHECK(lines == Names{"rank 0 of 3\n", "rank 1 of 3\n", "rank 2 of 3\n"});

        // The host of the next job loses its power: its address is silent, which is not the end of a daemon.
        Process lost(sandbox, hosts.on("n1", ddprun_line(shared.options(1), "echo started; exec sleep 1000")));
        REQUIRE(eventually(Seconds(30), [&] { return lost.out() == "started\n"; }));
        hosts.call({"kill", "n1"});
        (void)lost.wait(Seconds(10));
        const auto silent = run(
            sandbox, hosts.on("n2", ddprun_line(shared.options(1, {"--rdzv-conf", "read_timeout=3"}))), Seconds(30));
        INFO(silent.err);
        CHECK(silent.status.exit_code() == 69);
        CHECK_THAT(silent.err, Catch::Contains("the daemon at 10.77.0.1:") && Catch::Contains("(host n1, pid ") &&
                                   Catch::Contains("does not answer. If no job of this name runs, remove the value"));
        hosts.call({"start", "n1"});  // now its address refuses connections
        const auto next = run(sandbox, hosts.on("n2", ddprun_line(shared.options(1))), Seconds(60));
        INFO(next.err);
        CHECK(next.status.exit_code() == 0);
        CHECK_THAT(next.err, Catch::Contains("replaced the address 10.77.0.1:"));
    }
    CHECK(sandbox.leftovers() == "");
}
