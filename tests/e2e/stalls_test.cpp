// Jobs that stall, each for another reason: the line names the right one.

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>

#include "tests/catch.hpp"
#include "tests/e2e/hosts.hpp"
#include "tests/e2e/process.hpp"
#include "tests/e2e/stalls.hpp"

using Catch::Contains;
using e2e::line;
using e2e::report_of_stall;
using e2e::StallReport;

TEST_CASE("a send and a receive with different tags are a mismatch of both", "[e2e]") {
    const e2e::Sandbox sandbox("stall-tags");
    const std::string text = report_of_stall(sandbox, {STALLING, "tags"}, "MISMATCH: ").line;
    CHECK_THAT(text, Contains("send #1 f32[1048576] peer 1 tag 1") && Contains("recv #1 f32[1048576] peer 0 tag 2") &&
                         Contains("the same tag"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a message under a tag that is not received is reported at the deadline, with both sides", "[e2e]") {
    const auto [size, count] = GENERATE(table<std::string, std::string>({{"small", "10"}, {"large", "1048576"}}));
    const bool nodes = GENERATE(false, true);
    CAPTURE(size, nodes);
    const e2e::Sandbox sandbox("stall-" + size);
    std::vector<std::string> options{"--nproc_per_node", nodes ? "1" : "2", "--max-restarts", "0"};
    if (nodes) options.insert(options.end(), {"--nnodes", "2", "--local-nodes"});
    const auto job = e2e::run(sandbox, {.argv = line(options, {STALLING, size})}, e2e::Seconds(90));
    INFO("stdout:\n" << job.out << "stderr:\n" << job.err);
    CHECK(job.status.exit_code() == 1);
    const auto box = job.err.find("FAILED\n");
    REQUIRE(box != std::string::npos);
    CHECK_THAT(job.err.substr(box),
               Contains("\nMISMATCH: rank 1 (node") &&
                   Contains(") is in recv #1 f32[" + count + "] peer 0 tag 7 of group 'world' for ") &&
                   Contains(", and no receive matches the message that rank 0 (node") &&
                   Contains(") has sent it, send #1 f32[" + count +
                            "] peer 1 tag 5 'halo': the send and the receive must match"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("groups whose barriers are called in different orders are a circle", "[e2e]") {
    const e2e::Sandbox sandbox("stall-circle");
    const std::string text = report_of_stall(sandbox, {STALLING, "circle"}, "A CIRCLE: ").line;
    for (const std::string name : {"'first of world'", "'second (split 2) of world'"}) CHECK_THAT(text, Contains(name));
    CHECK_THAT(text, Contains("waits in #1 barrier of group '") &&
                         Contains("), which waits in #1 barrier of group '") && Contains("in one order"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a rank that computes lags behind, whatever it has under way", "[e2e]") {
    const auto how = GENERATE(as<std::string>(), "posted", "finisher", "meeting");
    const e2e::Sandbox sandbox("stall-" + how);
    const std::string text = report_of_stall(sandbox, {STALLING, how}, "LAGGING rank 1 (node1)").line;
    CHECK_THAT(text, Contains("rank 0 waits in #1 ") && Contains("in phase 'computing'"));
    if (how == "meeting") CHECK_THAT(text, Contains("monitored_barrier 'save' of group 'world (store)'"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("under a wrapper script the trainer's process is inspected", "[e2e]") {
    const auto wrapper =
        GENERATE(as<std::string>(), "", "setsid -w ", "timeout 600 ");  // the others: in a group of its own
    const e2e::Sandbox sandbox("stall-wrapper");
    const StallReport job =
        report_of_stall(sandbox, {"sh", "-c", fmt::format("{}'{}' stopped; echo wrapped", wrapper, STALLING)},
                        "LAGGING rank 1 (node1)");
    const auto at = job.out.find("stopping ");
    INFO(job.line << "\n" << job.out);
    REQUIRE(at != std::string::npos);
    const std::string pid = job.out.substr(at + 9, job.out.find('\n', at) - at - 9);
    CHECK_THAT(job.line, Contains("its process " + pid + " is stopped (a signal, a debugger): kill -CONT " + pid));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a wait for a rank that never appears is reported while it lasts, with the reason", "[e2e]") {
    const auto [how, verdict] = GENERATE(table<std::string, std::string>(
        {{"exec sleep 1000",
          "WAITING for rank 1 (node1), which has shown no flight record: peers wait in #1 init_from_env "},
         {"exit 0", "DEAD rank 1 (node1, exited with code 0, "}}));
    const e2e::Sandbox sandbox("stall-init");
    const std::string program = fmt::format("[ $RANK = 0 ] || {}; exec '{}' stopped", how, STALLING);
    CHECK_THAT(report_of_stall(sandbox, {"sh", "-c", program}, verdict).line,
               Contains("in #1 init_from_env of group 'world (init)' for ") && Contains("ddp::init_from_env()"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("between hosts that cannot reach each other the stall is the link's", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("stall-transport");
    const e2e::Hosts hosts(sandbox, 3);
    const auto argv =
        line({"--nnodes", "3", "--nproc_per_node", "1", "--rdzv-endpoint", "n3:29400", "--stall-warning", "2"},
             {STALLING, "loop"});
    e2e::Process third(sandbox, hosts.on("n3", argv));
    e2e::Process first(sandbox, hosts.on("n1", argv));
    e2e::Process second(sandbox, hosts.on("n2", argv));
    REQUIRE(e2e::eventually(e2e::Seconds(60), [&] { return third.out().find("looping") != std::string::npos; }));
    hosts.call({"partition", "n1", "n2"});
    const bool reported = e2e::eventually(e2e::Seconds(30), [&] {
        const std::string err = third.err();
        const auto at = err.find("LINK node n1 and node n2 cannot reach each other: rank ");
        if (at == std::string::npos) return false;
        const std::string line = err.substr(at, err.find('\n', at) - at);
        const auto says = [&](const char* words) { return line.find(words) != std::string::npos; };
        return says("0 (node n1)") && says("1 (node n2)") && says(" all_reduce sum f32[65536] of group 'world' for ");
    });
    INFO("n1:\n" << first.err() << "n2:\n" << second.err() << "n3:\n" << third.err());
    CHECK(reported);  // the two ranks that cannot reach each other, and their operation
    for (const e2e::Process* job : {&first, &second, &third}) job->signal(SIGINT);
    for (e2e::Process* job : {&first, &second, &third}) (void)job->wait(e2e::Seconds(60));
}
