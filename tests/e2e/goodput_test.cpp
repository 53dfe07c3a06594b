// Goodput: where the time of a job went that was disturbed, by the report, the events and the last line.

#include <fmt/format.h>
#include <signal.h>

#include <boost/json.hpp>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <thread>

#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"
#include "tests/e2e/training.hpp"
#include "tests/machine_pauses.hpp"

namespace {

namespace json = boost::json;
using Catch::Contains;
using e2e::eventually;
using e2e::Seconds;

/// Returns for how long the job is disturbed, and how often: DDPRUN_GOODPUT_MINUTES with a kill each minute, or three
/// kills within some seconds.
struct Disturbance {
    int kills = 3;
    std::chrono::milliseconds between{1800};  ///< a job of less than 5 s has no line about its goodput
};
Disturbance disturbance() {
    const char* const minutes = std::getenv("DDPRUN_GOODPUT_MINUTES");
    if (minutes == nullptr) return {};
    return {std::atoi(minutes), std::chrono::minutes(1)};
}

double sum_of(const json::value& phases) {
    double sum = 0;
    for (const auto& phase : phases.as_object()) sum += phase.value().to_number<double>();
    return sum;
}

double part(const json::value& phases, const char* name) { return phases.at(name).to_number<double>(); }

}  // namespace

TEST_CASE("all the time of a job whose workers are killed is accounted for", "[e2e]") {
    const e2e::Sandbox sandbox("goodput");
    const Disturbance plan = disturbance();
    const std::string report_path = sandbox.path() / "report.json";
    const std::string events_path = sandbox.path() / "events.jsonl";
    e2e::Training training{.launch = {"--nproc-per-node", "2", "--max-restarts", std::to_string(plan.kills), "--report",
                                      report_path, "--events", events_path},
                           .steps = 1'000'000,
                           .checkpoint_dir = (sandbox.path() / "checkpoints").string(),
                           .checkpoint_every = 50,
                           .losses = sandbox.path() / "losses"};
    const MachinePauses pauses;
    const auto began = std::chrono::steady_clock::now();
    e2e::Process job(sandbox, e2e::command_of(training));
    const auto makes_new_steps = [&] {
        const auto steps = e2e::read_losses(training.losses).size();
        return eventually(Seconds(60), [&] { return e2e::read_losses(training.losses).size() > steps; });
    };
    for (int kill = 0; kill < plan.kills; ++kill) {
        const std::string restarted = fmt::format("restart {} of {}", kill, plan.kills);
        REQUIRE(eventually(Seconds(60), [&] { return kill == 0 || Contains(restarted).match(job.err()); }));
        REQUIRE(makes_new_steps());
        std::this_thread::sleep_for(plan.between);  // all of it is new steps
        const std::optional<pid_t> victim = e2e::worker(sandbox, kill % 2);
        REQUIRE(victim);
        REQUIRE(::kill(*victim, SIGKILL) == 0);
    }
    const std::string restarted = fmt::format("restart {0} of {0}", plan.kills);
    REQUIRE(eventually(Seconds(60), [&] { return Contains(restarted).match(job.err()); }));
    REQUIRE(makes_new_steps());
    REQUIRE(::kill(job.pid(), SIGUSR1) == 0);  // the training stops, saved
    const ddprun::ExitStatus status = job.wait(Seconds(60));
    const double wall_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count();
    INFO("stdout:\n" << job.out() << "stderr:\n" << job.err());
    REQUIRE(status.exit_code() == 75);

    const json::value report = json::parse(e2e::read_file(report_path));
    CAPTURE(json::serialize(report));
    const json::value& phases = report.at("phases");
    CHECK(sum_of(phases) == Approx(report.at("wall_ms").to_number<double>()).epsilon(1e-4));
    CHECK(sum_of(phases) <= wall_ms);
    // Without the start and the end of the process itself.
    CHECK(sum_of(phases) >= 0.99 * wall_ms - 1000 - static_cast<double>(pauses.sum().count()));
    CHECK(report.at("goodput").to_number<double>() ==
          Approx(part(phases, "productive_ms") / report.at("wall_ms").to_number<double>()).epsilon(1e-3));
    for (const char* const name : {"rendezvous_ms", "start_ms", "restore_ms", "recompute_ms", "productive_ms"})
        CHECK(part(phases, name) > 0);
    const double in_new_steps = std::chrono::duration<double, std::milli>(plan.between).count() * plan.kills;
    CHECK(part(phases, "productive_ms") >= in_new_steps);
    CHECK(part(phases, "productive_ms") <= wall_ms - part(phases, "restore_ms") - part(phases, "recompute_ms"));
    double of_groups = 0;
    for (const json::value& group : report.at("groups").as_array()) of_groups += sum_of(group.at("phases"));
    if (plan.kills < 32) CHECK(of_groups <= sum_of(phases) + 0.01);  // which has the wait after the last group, too

    std::istringstream lines(e2e::read_file(events_path));
    int stopped = 0;
    json::value last;
    for (std::string line; std::getline(lines, line); last = json::parse(line)) {
        if (json::parse(line).at("event") != "stopped") continue;
        ++stopped;
        CHECK(sum_of(json::parse(line).at("phases")) > 0);
    }
    CHECK(stopped == plan.kills + 1);
    CHECK(last.at("event") == "verdict");
    CHECK(last.at("phases") == phases);
    CHECK_THAT(job.err(), Contains("goodput: ") && Contains("% of") && Contains("went into new steps; the rest: "));
    if (std::getenv("DDPRUN_GOODPUT_MINUTES") != nullptr)
        WARN("measured " << wall_ms << " ms, accounted " << sum_of(phases) << " ms: " << json::serialize(phases) << "\n"
                         << job.err());
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("nodes on one machine report one goodput", "[e2e]") {
    const e2e::Sandbox sandbox("goodput-nodes");
    const std::string report_path = sandbox.path() / "report.json";
    const e2e::Training training{
        .launch = {"--nnodes", "2", "--local-nodes", "--max-restarts", "1", "--report", report_path},
        .steps = 1'000'000,
        .checkpoint_dir = (sandbox.path() / "checkpoints").string(),
        .checkpoint_every = 20,
        .losses = sandbox.path() / "losses"};
    e2e::Process job(sandbox, e2e::command_of(training));
    e2e::reach_step(job, training, 30);
    std::this_thread::sleep_for(std::chrono::seconds(5));  // a shorter job has no such line
    REQUIRE(::kill(e2e::worker(sandbox, 1).value(), SIGKILL) == 0);
    REQUIRE(eventually(Seconds(60), [&] { return Contains("restart 1 of 1").match(job.err()); }));
    const auto steps = e2e::read_losses(training.losses).size();
    REQUIRE(eventually(Seconds(60), [&] { return e2e::read_losses(training.losses).size() > steps; }));
    REQUIRE(::kill(job.pid(), SIGUSR1) == 0);  // the training stops, saved
    REQUIRE(job.wait(Seconds(60)).exit_code() == 75);
    INFO(job.err());
    const std::string err = job.err();
    const auto at = err.find("goodput: ");
    REQUIRE(at != std::string::npos);
    CHECK(err.find("goodput: ", at + 1) == std::string::npos);
    const json::value report = json::parse(e2e::read_file(report_path));
    CHECK(report.at("groups").as_array().size() == 2);
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a Python program names its steps in a file", "[e2e]") {
    const e2e::Sandbox sandbox("goodput-python");
    const std::string report_path = sandbox.path() / "report.json";
    const std::string script = sandbox.path() / "steps.py";
    e2e::write_file(script, R"(import os, sys, time
time.sleep(1)  # restores
steps = open(os.environ["DDPRUN_STEP_FILE"], "w")
for step in range(95, 106):  # after a restart the first six are made again
    steps.seek(0)
    steps.write(f"{step}\n")
    steps.flush()
    time.sleep(0.4)
    if step == 100 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0": sys.exit(1)
)");
    const auto outcome = e2e::run(sandbox, {.argv = {(e2e::bin() / "ddprun").string(), "--nproc-per-node", "2",
                                                     "--max-restarts", "1", "--report", report_path, script}});
    INFO(outcome.err);
    REQUIRE(outcome.status.exit_code() == 0);
    CHECK_THAT(outcome.err, Contains("went into new steps"));
    const json::value report = json::parse(e2e::read_file(report_path));
    CAPTURE(json::serialize(report));
    CHECK(report.at("goodput").to_number<double>() > 0);
    const auto& groups = report.at("groups").as_array();
    REQUIRE(groups.size() == 2);
    CHECK(part(groups[0].at("phases"), "recompute_ms") == 0);
    for (const json::value& group : groups) CHECK(part(group.at("phases"), "restore_ms") >= 1000);
    CHECK(part(groups[1].at("phases"), "recompute_ms") >= 2000);  // 6 * 400 ms
    CHECK(part(groups[1].at("phases"), "productive_ms") >= 1500);
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("without steps the goodput is not known, and printed only after a restart", "[e2e]") {
    const e2e::Sandbox sandbox("goodput-none");
    const std::string report_path = sandbox.path() / "report.json";
    const auto run = [&](const std::string& script) {
        return e2e::run(sandbox, {.argv = {(e2e::bin() / "ddprun").string(), "--max-restarts", "1", "--report",
                                           report_path, "sh", "-c", script}});
    };
    CHECK_THAT(run("exit 0").err, !Contains("goodput"));
    CHECK(json::parse(e2e::read_file(report_path)).at("goodput").is_null());
    const auto outcome = run("sleep 3; exit $((1 - TORCHELASTIC_RESTART_COUNT))");
    CHECK(outcome.status.exit_code() == 0);
    CHECK_THAT(outcome.err, Contains("time: workers ran for "));
    CHECK(json::parse(e2e::read_file(report_path)).at("goodput").is_null());
    CHECK(sandbox.leftovers() == "");
}
