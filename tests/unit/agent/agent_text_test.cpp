// The output of a whole agent: status lines on its console, and log files.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/agent/agent_job.hpp"

using namespace agent_test;
using Catch::Contains;

namespace {

/// Has the agent run its workers, which succeed, to the end of the job. Returns its exit code.
int run_job(FakeDaemon& daemon, AgentProcess& agent) {
    daemon.welcome();
    daemon.send(assignment(1));
    daemon.expect<GroupSucceeded>();
    daemon.send(finished(Outcome::kSucceeded, 0));
    return agent.end().exit_code();
}

}  // namespace

TEST_CASE("the reason of a wait is printed once", "[agent]") {
    FakeDaemon daemon;
    AgentProcess agent(config(daemon, {"wait"}));
    daemon.welcome();
    Waiting waiting;
    waiting.reason = "1 of 2 nodes is here";
    daemon.send(waiting);
    daemon.send(waiting);
    CHECK_THAT(read_line(agent.err_.read_end.get()),
               Contains("n12: waiting at 127.0.0.1:") && Contains("1 of 2 nodes is here"));
    waiting.reason = "2 of 3 nodes are here";
    waiting.min_nodes = 3;  // and `present` is empty, as that of very many nodes
    daemon.send(waiting);
    CHECK_THAT(read_line(agent.err_.read_end.get()), Catch::EndsWith("2 of 3 nodes are here"));
    waiting.present = {"n12"};  // which may be the only one because the endpoint is a loopback address
    waiting.min_nodes = 2;
    daemon.send(waiting);
    CHECK_THAT(read_line(agent.err_.read_end.get()),
               Contains("2 of 3 nodes are here; a loopback address is another host on each node: if the nodes are on "
                        "several hosts, pass the name of one of them to all by --rdzv-endpoint"));
    daemon.send(finished(Outcome::kStopped, 143));
    CHECK(agent.end().exit_code() == 143);
    CHECK(agent.err() == "[ddprun] n12: the test says so\n");
}

TEST_CASE("a job that found too few nodes at a loopback endpoint names that as a likely reason", "[agent]") {
    const TemporaryDirectory directory;
    const std::string seen = GENERATE(as<std::string>(), "alone", "alone, then others", "alone, then workers");
    const auto outcome = GENERATE(Outcome::kInfrastructure, Outcome::kWorkerFailed);
    CAPTURE(seen, outcome);
    FakeDaemon daemon;
    AgentConfig c = config(daemon, {"wait"});
    c.report = directory.path() / "report.json";
    AgentProcess agent(std::move(c));
    daemon.welcome();
    Waiting waiting;
    waiting.reason = "1 of 2 nodes is here";
    waiting.present = {"n12"};
    waiting.min_nodes = 2;
    daemon.send(waiting);
    waiting.present = {"n12", "n13"};
    if (seen == "alone, then others") daemon.send(waiting);
    if (seen == "alone, then workers") {
        daemon.send(assignment(1));
        daemon.send(Abort{Generation{1}, "a test"});
        daemon.expect<GroupStopped>();
    }
    daemon.send(finished(outcome, 69));
    CHECK(agent.end().exit_code() == 69);
    const std::string sentence =
        "A loopback address is another host on each node: if the nodes are on several hosts, pass the name of one of "
        "them to all by --rdzv-endpoint.";
    const std::string err = agent.err();
    INFO(err);
    const bool is_named = seen == "alone" && outcome == Outcome::kInfrastructure;
    CHECK((err.find("\n  exit code   : 69\n" + sentence + "\n") != std::string::npos) == is_named);
    std::ifstream file(directory.path() / "report.json");
    const std::string report(std::istreambuf_iterator<char>(file), {});
    const auto hint = boost::json::parse(report).as_object().at("hint").as_string();
    CHECK((std::string(hint.c_str()) == sentence) == is_named);
}

TEST_CASE("the daemon's word on how long a failure has lasted is in the report", "[agent]") {
    const TemporaryDirectory directory;
    FakeDaemon daemon;
    AgentConfig c = config(daemon, {"out=ready\n", "wait"});
    c.report = directory.path() / "report.json";
    AgentProcess agent(std::move(c));
    daemon.welcome();
    daemon.send(assignment(1));
    for (int worker = 0; worker < 2; ++worker) CHECK(read_line(agent.out_.read_end.get()) == "ready");
    daemon.send(Abort{Generation{1}, "node n13 was lost", 0, false, 1h});
    daemon.expect<GroupStopped>();
    daemon.send(finished(Outcome::kInfrastructure, 69));
    CHECK(agent.end().exit_code() == 69);
    std::ifstream file(directory.path() / "report.json");
    const auto phases = boost::json::parse(std::string(std::istreambuf_iterator<char>(file), {})).at("phases");
    CHECK(phases.at("productive_ms") == 0);  // of its whole run
    CHECK(phases.at("detect_ms").to_number<double>() > 0);
}

TEST_CASE("a short wait is not printed", "[agent]") {
    FakeDaemon daemon;
    AgentProcess agent(config(daemon, {"wait"}));
    daemon.welcome();
    Waiting waiting;
    waiting.reason = "1 of 2 nodes is here";
    daemon.send(waiting);
    daemon.send(finished(Outcome::kSucceeded, 0));
    CHECK(agent.end().exit_code() == exit_code::kNeverRan);
    CHECK_THAT(agent.err(), !Contains("waiting"));
}

TEST_CASE("a node among several prints its number and ranks in one line, under the name that the job gave it",
          "[agent]") {
    FakeDaemon daemon;
    AgentProcess agent(config(daemon, {"env=DDPRUN_NODE_NAME"}));
    daemon.welcome();
    Welcome named;
    named.run_id = "run";
    named.lost_after = 20s;
    named.node_name = "n12#2";
    daemon.send(named);
    daemon.send(assignment(1));
    daemon.expect<GroupSucceeded>();
    daemon.send(finished(Outcome::kSucceeded, 0));
    CHECK(agent.end().exit_code() == 0);
    CHECK(agent.out() == "n12#2\nn12#2\n");
    CHECK(agent.err() == "[ddprun] this is node 1 of 2 (n12#2): ranks 2-3 of 4, generation 1\n");
}

TEST_CASE("ranks in --ranks-filter that the job cannot have are reported once", "[agent]") {
    struct Filter {
        RankRanges ranks;
        int max_nodes;
        std::string reported;
    };
    const auto filter = GENERATE(values<Filter>({
        {{{2, 2}, {3, 9}, {11, 11}}, 2, "the job has no ranks 4-9,11 (world size 4)\n"},
        {{{2, 2}, {99, 99}}, 3, ""},  // a third node may have any number of workers
        {{{0, 3}}, 2, ""},
        {{{4, 4}}, 3, "the job has no rank 4 (world size 4), so that nothing its workers print is shown\n"},
    }));
    FakeDaemon daemon;
    AgentConfig c = config(daemon, {"wait"});
    c.max_nodes = filter.max_nodes;
    c.output.console_job_ranks = filter.ranks;
    AgentProcess agent(std::move(c));
    daemon.welcome();
    daemon.send(assignment(1));
    daemon.send(Abort{Generation{1}, "a test"});
    daemon.expect<GroupStopped>();
    daemon.send(assignment(2));
    daemon.send(finished(Outcome::kStopped, 143));
    CHECK(agent.end().exit_code() == 143);
    const std::string err = agent.err();
    const auto at = err.find("--ranks-filter: ");
    CHECK((at == std::string::npos) == filter.reported.empty());
    if (at == std::string::npos) return;
    CHECK_THAT(err.substr(at), Catch::StartsWith("--ranks-filter: " + filter.reported));
    CHECK(err.find("--ranks-filter", at + 1) == std::string::npos);
}

TEST_CASE("a restart is counted against the maximum, but not one because nodes joined or were lost", "[agent]") {
    const int restart = GENERATE(0, 2);
    FakeDaemon daemon;
    AgentProcess agent(config(daemon, {"out=hello\n"}));
    daemon.welcome();
    Assignment again = assignment(5);
    again.restart_count = 4;
    again.max_restarts = 3;
    again.reason = "node n2 was lost";
    if (restart != 0) again.restart = {restart, 3};
    daemon.send(again);
    daemon.expect<GroupSucceeded>();
    daemon.send(finished(Outcome::kSucceeded, 0));
    CHECK(agent.end().exit_code() == 0);
    CHECK_THAT(agent.err(), Contains(restart == 0 ? "[ddprun] started again: 4 workers on "
                                                  : "[ddprun] restart 2 of 3: 4 workers on ") &&
                                Contains(" (node n2 was lost)\n") && !Contains("restart 4"));
}

TEST_CASE("an emulated node leaves the verdict to its launcher", "[agent]") {
    FakeDaemon daemon;
    Pipe final_report;
    AgentConfig c = config(daemon, {"err=about to fail\n", "exit=3"});
    c.emulated = true;
    c.programs[0].name = "train.py (python3)";
    c.final_report = std::move(final_report.write_end);
    AgentProcess agent(std::move(c));
    daemon.welcome();
    daemon.send(assignment(1));
    Finished end = finished(Outcome::kWorkerFailed, 3);
    end.verdict.culprit = daemon.expect<WorkerFailed>().failure;
    daemon.send(end);
    CHECK(agent.end().exit_code() == 3);
    CHECK_THAT(agent.err(), Contains("about to fail\n") && !Contains("===") && !Contains("[ddprun]"));
    const std::string record = read_all(final_report.read_end.get());
    REQUIRE(record.ends_with('\0'));
    const auto object = boost::json::parse(record.substr(0, record.size() - 1)).as_object();
    CHECK_FALSE(object.contains("report"));  // it was not asked for
    const std::string text = object.at("text").as_string().c_str();
    CHECK_THAT(text, Contains("train.py (python3) FAILED") && Contains("the test says so"));
    CHECK_THAT(text, Contains("stderr      : printed above; its last line:\n    | about to fail\n"));
}

TEST_CASE("the box quotes stderr of a worker of this node only if the console has not shown it", "[agent]") {
    const bool redirected = GENERATE(false, true);
    const TemporaryDirectory directory;
    FakeDaemon daemon;
    AgentConfig c = config(daemon, {"err=about to fail\n", "exit=3"});
    c.programs[0].slots = 1;
    if (redirected) c.output = {.log_dir = directory.path(), .redirects = {StreamCode::kStderr}};
    AgentProcess agent(std::move(c));
    daemon.welcome();
    daemon.send(assignment(1));
    Finished end = finished(Outcome::kWorkerFailed, 3);
    end.verdict.culprit = daemon.expect<WorkerFailed>().failure;
    daemon.send(end);
    CHECK(agent.end().exit_code() == 3);
    const std::string err = agent.err();
    CHECK(err.find("about to fail") == err.rfind("about to fail"));
    CHECK_THAT(err, Contains(redirected ? "    | about to fail\n" : "\n  stderr      : printed above\n"));
    CHECK((err.find("printed above") == std::string::npos) == redirected);
}

TEST_CASE("labelled lines and log files name host and rank", "[agent]") {
    const TemporaryDirectory directory;
    const auto& folder = directory.path();
    FakeDaemon daemon;
    AgentConfig c = config(daemon, {"out=hello\n", "err=problem\n"});
    c.output = {.log_dir = folder, .tee = {StreamCode::kBoth}, .label = true};
    AgentProcess agent(std::move(c));
    CHECK(run_job(daemon, agent) == 0);
    CHECK_THAT(agent.out(), Contains("[n12:2] hello\n") && Contains("[n12:3] hello\n"));
    CHECK_THAT(agent.err(), Contains("[n12:3] problem\n"));
    std::ifstream file(folder / "run" / "gen-1" / "rank-3.err");
    CHECK(std::string(std::istreambuf_iterator<char>(file), {}) == "problem\n");
    CHECK_FALSE(std::filesystem::exists(folder / "run" / "gen-1" / "rank-2.error.json"));  // it has not failed
}

TEST_CASE("each stream of each rank goes where it was sent, tee'd lines with torchrun's label", "[agent]") {
    const TemporaryDirectory directory;
    FakeDaemon daemon;
    AgentConfig c = config(daemon, {"out=hello\n", "err=problem\n", R"(error-file={"message": "x"})"});
    c.output = {.log_dir = directory.path(),
                .temporary = true,
                .redirects = {StreamCode::kStderr},
                .tee = {StreamCode::kNone, {{1, StreamCode::kStdout}}},
                .stdout_filters = {"hell", "none"}};
    AgentProcess agent(std::move(c));
    CHECK(run_job(daemon, agent) == 0);
    const std::string out = agent.out();
    CHECK((out == "hello\n[default1]:hello\n" || out == "[default1]:hello\nhello\n"));
    CHECK_THAT(agent.err(), !Contains("problem") && Contains("redirected output is in " + directory.path().string()));
    const auto folder = directory.path() / "run" / "gen-1";
    CHECK(read_file(folder / "rank-2.err") == "problem\n");
    CHECK(read_file(folder / "rank-3.out") == "hello\n");
    CHECK_FALSE(std::filesystem::exists(folder / "rank-2.out"));
    CHECK(read_file(folder / "filtered_stdout.log") == "[default1]:hello\n");
    CHECK_FALSE(std::filesystem::exists(folder / "filtered_stderr.log"));
    CHECK(read_file(folder / "rank-2.error.json") == R"({"message": "x"})");
}

TEST_CASE("the node of the culprit writes its error file for the parent, another one what the verdict has", "[agent]") {
    const bool here = GENERATE(true, false);
    const bool emulated = GENERATE(false, true);
    const TemporaryDirectory directory;
    FakeDaemon daemon;
    AgentConfig c = config(daemon, {R"(error-file={"message": {"message": "E: x", "more": 1}})", "exit=3"});
    c.programs[0].slots = 1;
    c.emulated = emulated;
    c.error_file = directory.path() / "job.json";
    AgentProcess agent(std::move(c));
    daemon.welcome();
    daemon.send(assignment(1));
    Finished end = finished(Outcome::kWorkerFailed, 3);
    end.verdict.culprit = daemon.expect<WorkerFailed>().failure;
    if (!here) end.verdict.culprit->host = "another";
    daemon.send(end);
    CHECK(agent.end().exit_code() == 3);
    const std::string text = read_file(directory.path() / "job.json");
    CAPTURE(here, emulated, text);
    if (here) CHECK(text == R"({"message":{"message":"E: x","more":1,"errorCode":3}})");
    if (!here && !emulated) CHECK_THAT(text, Contains(R"({"message":{"message":"E: x","extraInfo":{"timestamp":")"));
    if (!here && emulated) CHECK(text.empty());
}

TEST_CASE("workers that are not shown have log files too, and labels follow the template", "[agent]") {
    const TemporaryDirectory directory;
    const auto& folder = directory.path();
    FakeDaemon daemon;
    AgentConfig c = config(daemon, {"out=hello\n", "err=problem\n"});
    c.output = {.log_dir = folder,
                .redirects = {StreamCode::kBoth},
                .tee = {StreamCode::kBoth},
                .label_template = "<$role_name ${local_rank}> ",
                .console_ranks = {1}};
    AgentProcess agent(std::move(c));
    CHECK(run_job(daemon, agent) == 0);
    CHECK(agent.out() == "<default 1> hello\n");
    CHECK_THAT(agent.err(), Contains("<default 1> problem\n") && !Contains("<default 0>"));
    std::ifstream file(folder / "run" / "gen-1" / "rank-2.out");
    CHECK(std::string(std::istreambuf_iterator<char>(file), {}) == "hello\n");
}

TEST_CASE("a signal while the last log lines are written changes no exit code and cuts no file", "[agent]") {
    const TemporaryDirectory directory;
    const auto& folder = directory.path();
    std::filesystem::create_directories(folder / "run" / "gen-1");
    // A named pipe stands for a slow file system: it takes 64 KiB, and then nothing until the test reads.
    const std::string slow = folder / "run" / "gen-1" / "rank-2.err";
    REQUIRE(::mkfifo(slow.c_str(), 0600) == 0);
    const UniqueFd reader(::open(slow.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    const std::string text(100'000, 'x');  // an argument of a program is at most 128 KiB long
    FakeDaemon daemon;
    AgentConfig c = config(daemon, {"err=" + text});  // stdout would be the worker's own file
    c.output = {.log_dir = folder, .redirects = {StreamCode::kBoth}};
    AgentProcess agent(std::move(c), reader.get());
    daemon.welcome();
    daemon.send(assignment(1));
    daemon.expect<GroupSucceeded>();
    daemon.send(finished(Outcome::kSucceeded, 0));
    CHECK(daemon.closed());  // only the files are left
    for (const int signal : {SIGTERM, SIGUSR1, SIGINT}) agent.signal(signal);
    ::fcntl(reader.get(), F_SETFL, 0);
    CHECK(read_all(reader.get()) == text);
    const ExitStatus status = agent.end();
    CAPTURE(to_string(status));
    CHECK(status.success());
}

TEST_CASE("a file system that does not answer for a log file delays neither workers nor heartbeats", "[agent]") {
    const bool own = GENERATE(false, true);  // whether the worker writes the file itself
    const TemporaryDirectory directory;
    const auto folder = directory.path() / "run" / "gen-1";
    std::filesystem::create_directories(folder);
    const std::string path = folder / "rank-2.out";
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);  // stands for such a file system: open(2) waits for a reader
    FakeDaemon daemon;
    AgentConfig c = config(daemon, {"out=hello\n"});
    c.output = {.log_dir = directory.path()};
    if (own) c.output.redirects = {StreamCode::kStdout};
    AgentProcess agent(std::move(c));
    daemon.welcome();
    daemon.send(assignment(1));
    daemon.expect<GroupSucceeded>();
    daemon.expect_heartbeat();
    daemon.send(finished(Outcome::kSucceeded, 0));
    CHECK(read_file(path) == "hello\n");  // it answers again
    CHECK(agent.end().exit_code() == 0);
    CHECK(read_file(folder / "rank-3.out") == "hello\n");
    const std::string err = agent.err();
    CHECK((err.find("cannot open the log file " + path + ": its file system has not answered within 0.5 s") !=
           std::string::npos) == own);
}

TEST_CASE("an error file of an earlier attempt stays until a worker writes a new one", "[agent]") {
    const bool fails = GENERATE(false, true);
    const TemporaryDirectory directory;
    const auto folder = directory.path() / "run" / "gen-1";
    std::filesystem::create_directories(folder);
    write_file(folder / "rank-2.error.json", "old");
    FakeDaemon daemon;
    AgentConfig c = config(daemon, {fails ? "error-file=new" : "out=hello\n"});
    c.output = {.log_dir = directory.path()};
    AgentProcess agent(std::move(c));
    CHECK(run_job(daemon, agent) == 0);
    CHECK(read_file(folder / "rank-2.error.json") == (fails ? "new" : "old"));
    CHECK(std::filesystem::exists(folder / "rank-3.error.json") == fails);
}

TEST_CASE("log files that cannot be written cost one warning, and one for the bytes that are missing", "[agent]") {
    const bool own = GENERATE(false, true);
    const int nodes = GENERATE(1, 3);
    FakeDaemon daemon;
    AgentConfig c = config(daemon, {own ? "err=hello\n" : "out=hello\n"});
    c.max_nodes = nodes;
    if (own) c.output.redirects = {StreamCode::kStdout};
    c.output.log_dir = "/proc/nowhere";
    AgentProcess agent(std::move(c));
    CHECK(run_job(daemon, agent) == 0);
    if (!own) CHECK(agent.out() == "hello\nhello\n");
    const std::string err = agent.err();
    const std::string tag = nodes == 1 ? "[ddprun] " : "[ddprun] n12: ";
    CAPTURE(err);
    CHECK_THAT(err,
               Contains(tag + "cannot create the folder /proc/nowhere: ") &&
                   Contains(tag + "12 bytes of 2 files are missing, the first is the log file /proc/nowhere/run/"));
}
