#include "agent/job_report.hpp"

#include <csignal>

#include "common/exit_codes.hpp"
#include "tests/catch.hpp"

using namespace ddprun;
using namespace ddprun::agent;
using namespace std::chrono_literals;
using protocol::Outcome;
using protocol::Verdict;

namespace {

constexpr ExitStatus kExit1{ExitStatus::Kind::kExited, 1};

Verdict failed() {
    protocol::FailureReport culprit;
    culprit.rank = Rank{5};
    culprit.local_rank = LocalRank{1};
    culprit.node_rank = NodeRank{1};
    culprit.host = "n2";
    culprit.pid = 4242;
    culprit.status = {ExitStatus::Kind::kSignaled, SIGKILL};
    culprit.oom = protocol::OomKill::kYes;
    culprit.last_lines = {"loading", "\x1b[31mtoo much\xff"};
    Verdict verdict;
    verdict.outcome = Outcome::kWorkerFailed;
    verdict.exit_code = 137;
    verdict.reason = "rank 5 on n2 was killed";
    verdict.culprit = culprit;
    verdict.restarts = 2;
    verdict.also_failed = {{{{0, 4}, {7, 1}}, kExit1}, {{{6, 1}}, kExit1, {}, true}};
    return verdict;
}

AgentConfig config() {
    AgentConfig config;
    config.node_name = "n1";
    config.programs = {{.command = {"/bin/train"}}};
    config.command_line = "train --key ***";
    return config;
}

JobHistory two_groups() {
    const TimePoint began{};
    JobHistory history(began);
    protocol::Assignment assignment;
    assignment.generation = Generation{1};
    assignment.node_rank = NodeRank{1};
    assignment.node_count = 2;
    assignment.world_size = 8;
    assignment.rank_base = 4;
    history.note(Event{began, Welcomed{"mnist", ""}});
    history.note(StartWorkers{assignment}, began + 10ms);
    history.note_started(began + 14ms);
    history.note_failure(2ms);
    history.note(SignalGroup{SIGTERM}, began + 1014ms);
    history.note_failure(900ms);  // of a victim
    history.note(SignalGroup{SIGKILL}, began + 1020ms);
    history.note(Event{began + 1044ms, GroupReaped{}});
    assignment.generation = Generation{2};
    assignment.restart = {1, 2, "server"};
    assignment.reason = "rank 0 exited";
    history.note(StartWorkers{assignment}, began + 1050ms);
    return history;
}

}  // namespace

TEST_CASE("a report has the facts of the verdict, decoded", "[agent]") {
    const Finish finish{137, "", failed()};
    JobReport report = report_of(finish, config(), two_groups());
    report.error_text = R"({"message":{"message":"boom"}})";
    const auto json = boost::json::parse(report_text(to_json(report)));
    CHECK(json.at("version") == kReportVersion);
    CHECK(json.at("result") == "worker_failed");
    CHECK(json.at("exit_code") == 137);
    CHECK(json.at("reason") == "rank 5 on n2 was killed");
    CHECK_THAT(json.at("hint").as_string().c_str(), Catch::Contains("Memory ran out there"));
    CHECK(json.at("command") == "train --key ***");
    CHECK(json.at("run_id") == "mnist");
    CHECK(json.at("host") == "n1");
    CHECK(json.at("node_rank") == 1);
    CHECK(json.at("generation") == 2);
    CHECK(json.at("restarts") == 2);
    const auto& culprit = json.at("culprit");
    CHECK(culprit.at("rank") == 5);
    CHECK(culprit.at("pid") == 4242);
    CHECK(culprit.at("exit_code") == 137);
    CHECK(culprit.at("signal_name") == "SIGKILL");
    CHECK(culprit.at("oom") == "yes");
    CHECK(culprit.at("end") == "was killed by SIGKILL by the kernel's out-of-memory killer");
    CHECK(culprit.at("last_lines").at(1) == "\x1b[31mtoo much\xef\xbf\xbd");
    CHECK(json.at("first_victim").is_null());
    CHECK(json.at("error_file").at("message").at("message") == "boom");
    CHECK(json.at("also_failed") == boost::json::parse(R"([{"ranks":[[0,3],[7,7]],"exit_code":1,"oom":null}])"));
    CHECK(json.at("victims") == boost::json::parse(R"([{"ranks":[[6,6]],"exit_code":1,"oom":null}])"));
}

TEST_CASE("a report has the phases of each group, in milliseconds", "[agent]") {
    const auto json = to_json(report_of({137, "", failed()}, config(), two_groups()));
    const auto& groups = json.at("groups").as_array();
    REQUIRE(groups.size() == 2);
    const auto& phases = groups[0].at("phases");
    CHECK(phases.at("rendezvous_ms") == 10.0);
    CHECK(phases.at("start_ms") == 4.0);
    CHECK(phases.at("productive_ms") == 998.0);
    CHECK(phases.at("detect_ms") == 2.0);
    CHECK(phases.at("stop_ms") == 30.0);
    CHECK(json.at("phases").at("stop_ms") == 30.0);
    CHECK(json.at("wall_ms") == 1044.0);
    CHECK(json.at("goodput").is_null());  // no worker has named a step
    CHECK(groups[1].at("reason") == "rank 0 exited");
    CHECK(groups[0].at("restart") == 0);
    CHECK(groups[0].at("restart_role").is_null());
    CHECK(groups[1].at("restart") == 1);
    CHECK(groups[1].at("restart_role") == "server");
}

TEST_CASE("the history of a job that is restarted for ever stays small", "[agent]") {
    JobHistory history(TimePoint{});
    for (int i = 0; i < 100; ++i) {
        protocol::Assignment assignment;
        assignment.generation = Generation{i};
        history.note(StartWorkers{assignment}, TimePoint{});
    }
    CHECK(history.groups().size() == JobHistory::kMaxGroups);
    CHECK(history.latest()->assignment.generation == Generation{99});
    CHECK(history.before_latest()->assignment.generation == Generation{98});
}

TEST_CASE("each end has a result of its own", "[agent]") {
    const auto with = [](Outcome outcome) {
        Verdict verdict;
        verdict.outcome = outcome;
        return verdict;
    };
    const Verdict succeeded = with(Outcome::kSucceeded);
    const Verdict stopped = with(Outcome::kStopped);
    const Verdict lost = with(Outcome::kInfrastructure);
    const Verdict worker = with(Outcome::kWorkerFailed);
    CHECK(result_of(&succeeded, 0) == "succeeded");
    CHECK(result_of(&succeeded, exit_code::kNeverRan) == "not_needed");
    CHECK(result_of(&stopped, 143) == "interrupted");
    CHECK(result_of(&lost, 69) == "infrastructure");
    CHECK(result_of(&worker, 143) == "worker_failed");
    CHECK(result_of(&worker, exit_code::kNeverRan) == "worker_failed");  // a program may use the number
    for (const int code : {126, 127}) {
        Verdict verdict = with(Outcome::kWorkerFailed);
        verdict.culprit = protocol::FailureReport();
        verdict.culprit->status = {ExitStatus::Kind::kExited, code};
        CHECK(result_of(&verdict, code) == "usage");  // never started
        verdict.culprit->pid = 4242;
        CHECK(result_of(&verdict, code) == "worker_failed");
    }
    for (const int code : {2, 126, 127}) CHECK(result_of(nullptr, code) == "usage");
    CHECK(result_of(nullptr, 69) == "infrastructure");
    CHECK(result_of(nullptr, 130) == "interrupted");
    CHECK(result_of(nullptr, 70) == "internal");
}

TEST_CASE("an interruption names its signal, and an end before any group has no group", "[agent]") {
    const auto json = to_json(report_of({143, "interrupted by SIGTERM", {}}, config(), JobHistory(TimePoint{})));
    CHECK(json.at("result") == "interrupted");
    CHECK(json.at("signal_name") == "SIGTERM");
    CHECK(json.at("reason") == "interrupted by SIGTERM");
    CHECK(json.at("generation").is_null());
    CHECK(json.at("groups").as_array().empty());
    CHECK(json.at("run_id").is_null());
    CHECK(json.at("culprit").is_null());
}

TEST_CASE("a worker that could not be started has no process in the report", "[agent]") {
    Verdict verdict = failed();
    verdict.culprit->pid = 0;
    verdict.first_victim = true;
    JobReport report = report_of({137, "", verdict}, config(), two_groups());
    report.error_text = "{]";
    const auto json = to_json(report);
    CHECK(json.at("culprit").is_null());
    CHECK(json.at("first_victim").at("pid").is_null());
    CHECK(json.at("first_victim").at("end") == "could not be started");
    CHECK(json.at("error_file").is_null());
}
