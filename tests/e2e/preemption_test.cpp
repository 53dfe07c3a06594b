// A notice of preemption: all workers of all nodes stop in one step, save it, and the job ends with 75.

#include <fmt/format.h>
#include <signal.h>

#include <boost/json/parse.hpp>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <thread>

#include "common/system/process_state.hpp"
#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"
#include "tests/e2e/training.hpp"

namespace {

using Catch::Contains;
using e2e::eventually;
using e2e::Seconds;

/// Returns how many preemptions one training is to survive: DDPRUN_PREEMPTIONS, or a few.
int preemptions() {
    const char* const wanted = std::getenv("DDPRUN_PREEMPTIONS");
    return wanted != nullptr ? std::atoi(wanted) : 8;
}

/// Returns an agent of the job, or its launcher as long as no worker runs.
pid_t any_agent(const e2e::Sandbox& sandbox, const e2e::Process& job, std::mt19937& dice) {
    const auto worker = e2e::worker(sandbox, static_cast<int>(dice() % 4));
    const pid_t agent = worker ? ddprun::parent_of(*worker) : 0;
    return agent > 1 ? agent : job.pid();
}

e2e::Outcome ddpctl(const e2e::Sandbox& sandbox, std::vector<std::string> words, const std::string& endpoint) {
    words.insert(words.begin(), (e2e::bin() / "ddpctl").string());
    words.insert(words.end(), {"--rdzv-endpoint", endpoint});
    return e2e::run(sandbox, {.argv = std::move(words)}, Seconds(30));
}

}  // namespace

TEST_CASE("no step is lost, and none is computed twice, if a training is preempted again and again", "[e2e]") {
    const e2e::Sandbox sandbox("preempted");
    const unsigned seed = std::random_device{}();
    std::mt19937 dice(seed);
    const auto newest = sandbox.path() / "checkpoints";
    e2e::Training training{.launch = {"--nnodes", "2", "--local-nodes", "--nproc-per-node", "2"},
                           .steps = 1'000'000,
                           .checkpoint_dir = newest.string(),
                           .checkpoint_every = 1'000,
                           .losses = sandbox.path() / "losses"};
    int last_step = 0;
    for (int run = 0; run < preemptions(); ++run) {
        const std::chrono::milliseconds moment(dice() % 1500);
        CAPTURE(seed, run, moment.count(), last_step);
        e2e::Process job(sandbox, e2e::command_of(training));
        REQUIRE(eventually(Seconds(20), [&] { return sandbox.pids("ddprund").size() == 1; }));
        std::this_thread::sleep_for(moment);  // any moment will do: there is nothing to wait for
        REQUIRE(::kill(any_agent(sandbox, job, dice), SIGUSR1) == 0);
        const ddprun::ExitStatus status = job.wait(Seconds(30));
        INFO("stdout:\n" << job.out() << "stderr:\n" << job.err());
        REQUIRE(status.exit_code() == 75);
        CHECK_THAT(job.err(), Contains("preempted: node") && Contains("got SIGUSR1"));
        const auto losses = e2e::read_losses(training.losses);
        REQUIRE_FALSE(losses.empty());
        const int stopped_at = losses.rbegin()->first;
        CHECK(stopped_at > last_step);
        CHECK(std::filesystem::exists(newest / fmt::format("step-{}.safetensors", stopped_at)));
        last_step = stopped_at;
    }
    CHECK(sandbox.leftovers() == "");

    const e2e::Training undisturbed{
        .launch = training.launch, .steps = last_step, .losses = sandbox.path() / "undisturbed"};
    REQUIRE(e2e::run(sandbox, e2e::command_of(undisturbed), Seconds(250)).status.success());
    CHECK(e2e::read_losses(undisturbed.losses) == e2e::read_losses(training.losses));
}

TEST_CASE("at the deadline of a preemption the verdict names the rank for which the others wait", "[e2e]") {
    const e2e::Sandbox sandbox("overdue");
    const std::string endpoint = fmt::format("127.0.0.1:{}", e2e::free_port());
    const auto report = sandbox.path() / "report.json";
    const auto node = [&](std::vector<std::string> more) {
        std::vector<std::string> argv{
            (e2e::bin() / "ddprun").string(), "--nnodes", "2", "--nproc-per-node", "2", "--rdzv-endpoint", endpoint};
        argv.insert(argv.end(), more.begin(), more.end());
        argv.insert(argv.end(), {STALLING, "sleeper"});
        return e2e::Command{.argv = std::move(argv)};
    };
    e2e::Process job(sandbox, node({"--report", report.string()}));
    e2e::Process other(sandbox, node({}));
    REQUIRE(eventually(Seconds(30),
                       [&] { return ddpctl(sandbox, {"dump"}, endpoint).out.find("computing") != std::string::npos; }));
    const e2e::Outcome order = ddpctl(sandbox, {"preempt", "--deadline", "2"}, endpoint);
    CHECK(order.status.success());
    CHECK(order.out == "2 nodes get notice to stop in one step\n");
    CHECK(job.wait(Seconds(30)).exit_code() == 75);
    CHECK(other.wait(Seconds(30)).exit_code() == 75);
    for (const e2e::Process* const each : {&job, &other})
        CHECK_THAT(each->err(), Contains("preempted: ddpctl preempt; ranks 0-3 had not ended at the deadline"));
    CHECK_THAT(job.err() + other.err(), Contains("DID NOT STOP IN TIME") && Contains("LAGGING rank 1"));
    CHECK(boost::json::parse(e2e::read_file(report)).at("result") == "preempted");
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a program without the library finds the notice in a file, or gets SIGUSR1 if it handles it", "[e2e]") {
    const e2e::Sandbox sandbox("file");
    const std::string endpoint = fmt::format("127.0.0.1:{}", e2e::free_port());
    // Rank 0 looks at the file and would die of the signal; rank 1 handles it.
    const std::string script = R"(
import json, os, signal, sys, time
path = os.environ["DDPRUN_PREEMPT_FILE"]
got = []
if os.environ["RANK"] == "1":
    signal.signal(signal.SIGUSR1, lambda *_: got.append(1))
print("up", flush=True)
while os.path.getsize(path) == 0 or (os.environ["RANK"] == "1" and not got):
    time.sleep(0.02)
notice = json.load(open(path))
print("rank", os.environ["RANK"], "reason:", notice["reason"], notice["deadline"] is not None, flush=True)
sys.exit(75)
)";
    e2e::write_file(sandbox.path() / "worker.py", script);
    e2e::Process job(sandbox, {.argv = {(e2e::bin() / "ddprun").string(), "--nproc-per-node", "2", "--rdzv-endpoint",
                                        endpoint, "worker.py"},
                               .directory = sandbox.path()});
    REQUIRE(eventually(Seconds(20), [&] { return job.out() == "up\nup\n"; }));
    std::string by;
    SECTION("by order") {
        CHECK(ddpctl(sandbox, {"preempt", "--deadline", "20"}, endpoint).status.success());
        by = "ddpctl preempt True";
    }
    SECTION("by signal") {
        job.signal(SIGUSR1);
        by = "got SIGUSR1 False";
    }
    CHECK(job.wait(Seconds(30)).exit_code() == 75);
    INFO(job.out() << job.err());
    CHECK_THAT(job.out(), Contains("rank 0 reason:") && Contains("rank 1 reason:") && Contains(by));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("workers get notice before the scheduler's time limit", "[e2e]") {
    const e2e::Sandbox sandbox("limit");
    using std::chrono::system_clock;
    const std::string script =
        "until [ -s $DDPRUN_PREEMPT_FILE ]; do sleep 0.02; done; cat $DDPRUN_PREEMPT_FILE; exit 75";
    const auto job = [&](std::chrono::seconds left, std::vector<std::string> more) {
        std::vector<std::string> argv{(e2e::bin() / "ddprun").string(), "--standalone"};
        argv.insert(argv.end(), more.begin(), more.end());
        argv.insert(argv.end(), {"sh", "-c", script});
        return e2e::Command{
            .argv = std::move(argv),
            .env = {{"SLURM_JOB_END_TIME", std::to_string(system_clock::to_time_t(system_clock::now() + left))}}};
    };
    const e2e::Outcome outcome =
        e2e::run(sandbox, job(std::chrono::seconds(60), {"--preempt-before", "58"}), Seconds(30));
    CHECK(outcome.status.exit_code() == 75);
    CHECK_THAT(outcome.out, Contains("the job's time limit ends in"));
    CHECK_THAT(outcome.err, Contains("preempted: the job's time limit ends in"));
    SECTION("but not if the user wants none") {
        e2e::Process without(sandbox, job(std::chrono::seconds(3), {"--preempt-before", "0"}));
        CHECK_FALSE(eventually(Seconds(5), [&] { return !without.running(); }));
        without.signal(SIGTERM);
        CHECK(without.wait(Seconds(30)).exit_code() == 143);
    }
    SECTION("and a time that is none is refused") {
        e2e::Command bad = job(std::chrono::seconds(60), {});
        bad.env = {{"SLURM_JOB_END_TIME", "noon"}};
        const e2e::Outcome refused = e2e::run(sandbox, bad);
        CHECK(refused.status.exit_code() == 2);
        CHECK_THAT(refused.err, Contains("SLURM_JOB_END_TIME=noon: not a time in seconds since 1970"));
    }
    CHECK(sandbox.leftovers() == "");
}
