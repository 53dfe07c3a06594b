#include "agent/event_json.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <csignal>
#include <cstdlib>
#include <sstream>

#include "agent/event_log.hpp"
#include "agent/job_report.hpp"
#include "agent/json_values.hpp"
#include "agent/output/log_files.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"

using namespace ddprun;
using namespace ddprun::agent;
using namespace std::chrono_literals;
namespace json = boost::json;

namespace {

/// Two workers of two programs.
AgentConfig two_programs() {
    AgentConfig config;
    config.programs = {{.command = {"/bin/train"}}, {.command = {"/bin/serve"}, .role = "server"}};
    return config;
}

/// Returns the events of one step of the worker group, and its decisions.
std::vector<std::string> lines_of(worker_group::State& state, const Happening& what) {
    const Event event{TimePoint{}, what};
    worker_group::Step step = worker_group::step(std::move(state), event);
    state = std::move(step.next);
    std::vector<std::string> lines;
    if (const auto happened = describe(event, state, two_programs())) lines.push_back(json::serialize(*happened));
    for (const Action& action : step.actions) {
        if (const auto decided = describe(action, state, step.reason, two_programs()))
            lines.push_back(json::serialize(*decided));
    }
    return lines;
}

using Lines = std::vector<std::string>;

protocol::Assignment group_assignment(int generation) {
    protocol::Assignment assignment;
    assignment.generation = Generation{generation};
    assignment.world_size = 4;
    assignment.rank_base = 2;
    assignment.master_addr = "10.0.0.1";
    assignment.master_port = 4711;
    return assignment;
}

}  // namespace

TEST_CASE("the life of a worker group is a sequence of lines", "[agent]") {
    worker_group::State state;
    state.slots = 2;
    state.grace = 30s;
    CHECK(lines_of(state, Welcomed{"mnist", ""}) == Lines{R"({"event":"joined"})"});
    CHECK(lines_of(state, WaitReceived{"1 of 2 nodes are here"}) ==
          Lines{R"({"event":"waiting","reason":"1 of 2 nodes are here"})"});
    CHECK(lines_of(state, Assigned{group_assignment(1)}) ==
          Lines{R"({"event":"assigned","reason":"","nodes":1,"world_size":4,"first_rank":2,"workers":2,"restart":0,)"
                R"("restart_role":null,"max_restarts":0,"master_addr":"10.0.0.1","master_port":4711})"});
    CHECK(lines_of(state, Tick{}).empty());
    const ExitStatus killed{ExitStatus::Kind::kSignaled, SIGSEGV, true};
    const Lines failure = lines_of(state, WorkerExited{LocalRank{1}, killed, true});
    REQUIRE(failure.size() == 2);
    CHECK(failure[0] == R"({"event":"worker_exited","rank":3,"local_rank":1,"role":"server","exit_code":139,)"
                        R"("signal":11,"signal_name":"SIGSEGV","core_dumped":true,"by_itself":true})");
    CHECK_THAT(failure[1],
               Catch::Contains(R"("event":"stopping","signal":15,"signal_name":"SIGTERM","reason":"rank 3)"));
    CHECK(lines_of(state, AbortReceived{Generation{1}, "rank 3 on n1 was killed", 0, true}) ==
          Lines{R"({"event":"abort","reason":"rank 3 on n1 was killed","generation":1})"});
    (void)lines_of(state, WorkerExited{LocalRank{0}, {ExitStatus::Kind::kSignaled, SIGTERM}, false});
    CHECK(lines_of(state, GroupReaped{}) == Lines{R"({"event":"stopped"})"});
    protocol::Verdict verdict;
    verdict.outcome = protocol::Outcome::kWorkerFailed;
    verdict.exit_code = 139;
    verdict.reason = "rank 3 failed";
    CHECK(lines_of(state, JobFinished{verdict}) ==
          Lines{R"({"event":"verdict","reason":"rank 3 failed","result":"worker_failed","exit_code":139})"});
}

TEST_CASE("a success, signals and the connection to the daemon have lines", "[agent]") {
    worker_group::State state;
    state.grace = 30s;
    (void)lines_of(state, Assigned{group_assignment(1)});
    CHECK(lines_of(state, ConnectionChanged{"lost x; connecting again"}) ==
          Lines{R"({"event":"connection_lost","reason":"lost x; connecting again"})"});
    CHECK(lines_of(state, ConnectionChanged{"connected again", true}) ==
          Lines{R"({"event":"connection_back","reason":"connected again"})"});
    CHECK(lines_of(state, NotifySignal{SIGUSR1}) == Lines{R"({"event":"signal","signal":10,"signal_name":"SIGUSR1"})"});
    CHECK(lines_of(state, WorkerExited{LocalRank{0}, {ExitStatus::Kind::kExited, 0}, true}) ==
          Lines{R"({"event":"worker_exited","rank":2,"local_rank":0,"role":"default","exit_code":0,"by_itself":true})",
                R"({"event":"succeeded"})"});
    const Event late{TimePoint{} + 31s, Tick{}};
    const worker_group::Step killing = worker_group::step(std::move(state), late);
    REQUIRE(killing.actions.size() == 1);
    CHECK_THAT(json::serialize(*describe(killing.actions[0], killing.next, killing.reason, two_programs())),
               Catch::StartsWith(R"({"event":"stopping","signal":9,"signal_name":"SIGKILL","reason":"processes are)"));
}

TEST_CASE("an assignment has the address that workers get", "[agent]") {
    AgentConfig config = two_programs();
    config.master = Endpoint{"head", 29500};
    const auto object = describe(StartWorkers{group_assignment(1)}, {}, "", config);
    CHECK(object->at("master_addr") == "head");
    CHECK(object->at("master_port") == 29500);
}

TEST_CASE("an assignment after a failure names the role whose restart it is", "[agent]") {
    protocol::Assignment assignment = group_assignment(2);
    assignment.max_restarts = 5;
    assignment.restart = {1, 3, "server"};
    const auto object = describe(StartWorkers{assignment}, {}, "", two_programs());
    CHECK(object->at("restart") == 1);
    CHECK(object->at("restart_role") == "server");
    CHECK(object->at("max_restarts") == 5);
}

TEST_CASE("the start of a group after a restart has the phases of the restart", "[agent]") {
    JobHistory history(TimePoint{});
    history.note(StartWorkers{group_assignment(1)}, TimePoint{} + 3ms);
    history.note_started(TimePoint{} + 5ms);
    CHECK(
        json::serialize(describe_start({77, 78}, history, two_programs())) ==
        R"({"event":"workers_started","workers":[{"rank":2,"local_rank":0,"role":"default","pid":77},)"
        R"({"rank":3,"local_rank":1,"role":"server","pid":78}],"waiting_ms":0E0,"rendezvous_ms":3E0,"start_ms":2E0})");
    history.note_failure(1ms);
    history.note(SignalGroup{SIGTERM}, TimePoint{} + 10ms);
    history.note(Event{TimePoint{} + 14ms, GroupReaped{}});
    history.note(StartWorkers{group_assignment(2)}, TimePoint{} + 15ms);
    history.note_started(TimePoint{} + 17ms);
    const json::object restarted = describe_start({79, 80}, history, two_programs());
    CHECK(restarted.at("detect_ms") == 1.0);
    CHECK(restarted.at("stop_ms") == 4.0);
    CHECK(restarted.at("rendezvous_ms") == 1.0);
    CHECK(restarted.at("start_ms") == 2.0);
}

TEST_CASE("each line has the time, the place and the group", "[agent]") {
    const TemporaryDirectory directory;
    const std::string path = directory.path() / "events";
    boost::asio::io_context io;
    LogWriter writer(io, [](const std::string& problem) { FAIL_CHECK(problem); });
    AgentConfig config;
    config.node_name = "n1";
    const TimePoint began = Clock::now();
    JobHistory history(began);
    EventLog log(writer.take(*open_log_file(path), "the events " + path), config, history, began);
    history.note(Event{began, Welcomed{"mnist", ""}});
    log.record(Event{began, Welcomed{"mnist", ""}}, {});
    for (int i = 0; i < 3; ++i) log.record(PrintWait{"1 of 2 nodes"}, {}, "", began + 5ms);  // the daemon repeats it
    history.note(StartWorkers{group_assignment(7)}, began + 6ms);
    log.record(StartWorkers{group_assignment(7)}, {}, "", began + 6ms);
    log.record(PrintWait{"1 of 2 nodes"}, {}, "", began + 7ms);  // another wait
    log.close();
    writer.finish(10s);
    std::istringstream lines(read_file(path));
    std::vector<json::object> objects;
    for (std::string line; std::getline(lines, line);) objects.push_back(json::parse(line).as_object());
    REQUIRE(objects.size() == 4);
    CHECK(objects[0].at("event") == "joined");
    CHECK(objects[0].at("version") == kReportVersion);
    CHECK(objects[0].at("host") == "n1");
    CHECK(objects[0].at("run_id") == "mnist");
    CHECK(objects[0].at("ms") == 0);
    CHECK(objects[0].at("generation").is_null());
    CHECK(objects[1].at("ms") == 5);
    CHECK(objects[2].at("generation") == 7);
    CHECK(objects[2].at("node_rank") == 0);
    CHECK(objects[3].at("event") == "waiting");
}

TEST_CASE("lines that are dropped until the end are counted in a last line", "[agent]") {
    std::array<int, 2> ends{};
    REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
    const UniqueFd reader(ends[0]);
    boost::asio::io_context io;
    LogWriter writer(io, [](const std::string& problem) { FAIL_CHECK(problem); });
    const AgentConfig config;
    const JobHistory history(TimePoint{});
    EventLog log(writer.take(UniqueFd(ends[1]), "pipe"), config, history, TimePoint{});
    const std::size_t half = LogWriter::kBacklogBytes / 2;
    for (const char letter : {'a', 'b', 'c', 'd', 'e'})
        log.record(PrintWait{std::string(half, letter)}, {}, "", TimePoint{});
    log.close();
    std::string text;
    std::array<char, 65536> buffer{};
    for (ssize_t count = 1; (count = ::read(reader.get(), buffer.data(), buffer.size())) > 0;)
        text.append(buffer.data(), static_cast<std::size_t>(count));
    writer.finish(20s);
    std::size_t whole = 0;
    std::string last;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line); ++whole) last = line;
    CHECK(json::parse(last).at("event") == "lines_dropped");
    CHECK(json::parse(last).at("lines_dropped") == 5 - (whole - 1));
}

TEST_CASE("times are in UTC with milliseconds, whatever the time zone", "[agent]") {
    const std::chrono::system_clock::time_point time{std::chrono::milliseconds(1'795'686'000'007)};
    CHECK(utc_text(time) == "2026-11-26T09:40:00.007Z");
    CHECK(milliseconds_json(std::chrono::nanoseconds(1'234'567)) == 1.235);
    CHECK(milliseconds_json(std::nullopt).is_null());
}

TEST_CASE("numbers are written for people, and everything else as JSON demands", "[agent]") {
    const json::value value{{"ms", 13.763},
                            {"whole", 5.0},
                            {"small", 0.001},
                            {"n", nullptr},
                            {"k\"\n", {1, "a\x01", true}},
                            {"none", json::array()},
                            {"empty", json::object()}};
    const std::string text = json_text(value);
    CHECK(text == R"({"ms":13.763,"whole":5,"small":0.001,"n":null,"k\"\n":[1,"a\u0001",true],"none":[],"empty":{}})");
    CHECK(json::parse(text).at("ms") == 13.763);
    CHECK(json_text(json::parse(R"({"loss":1e999})")) == R"({"loss":null})");
}
