// The job scripts of scripts/slurm while nodes fail, and while SLURM takes nodes away. Skipped where the tools for
// SLURM are absent.

#include <fmt/format.h>

#include <cstdio>
#include <sstream>
#include <string>
#include <utility>

#include "tests/catch.hpp"
#include "tests/e2e/slurm_job.hpp"

namespace {

using Catch::Contains;
using e2e::Seconds;

constexpr int kSteps = 2000;

/// SlowNode: delays what a node sends, so that a training on it does not end before speed_up(), however long SLURM and
/// the test take until then.
class SlowNode {
public:
    SlowNode(const e2e::Slurm& slurm, std::string node) : slurm_(slurm), node_(std::move(node)) {
        slurm_.call({"hosts", "delay", node_, "50ms"});
    }
    void speed_up() const { slurm_.call({"hosts", "delay", node_, "off"}); }

private:
    const e2e::Slurm& slurm_;
    std::string node_;
};

/// Returns the word that follows `text` in the output; empty: the text is not there.
std::string word_after(const std::string& output, const std::string& text) {
    const auto at = output.find(text);
    std::istringstream rest(at == std::string::npos ? "" : output.substr(at + text.size()));
    std::string word;
    rest >> word;
    return word;
}

/// Checks that the workers saved a step at the notice, and that the next attempt went on after it: no step was lost.
void check_saved_step(const std::string& output) {
    const std::string saved = word_after(output, "train: preempted: saved step ");
    CHECK(saved != "");
    CHECK(word_after(output, "train: resumed after step ") == saved);
    CHECK_THAT(output, Contains("attempt 1 of 100 ended with code 75; requeueing"));
}

/// Returns a time limit in minutes that leaves a job of this run time ("00:01:15") 40 s or more: the notice comes 20 s
/// before its end.
int minutes_with_room(const std::string& run_time) {
    int hours = 0;
    int minutes = 0;
    int seconds = 0;
    REQUIRE(std::sscanf(run_time.c_str(), "%d:%d:%d", &hours, &minutes, &seconds) == 3);
    return (hours * 3600 + minutes * 60 + seconds + 40 + 59) / 60;
}

}  // namespace

TEST_CASE("requeue.sbatch resumes from the checkpoint after the failure of a node", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const std::string victim = GENERATE(std::string("n1"), std::string("n2"));  // n1 runs the script
    const e2e::Sandbox sandbox("slurm-requeue");
    const e2e::Slurm slurm(sandbox, 3);
    const SlowNode survivor(slurm, victim == "n1" ? "n2" : "n1");
    const e2e::SlurmJob job(sandbox, slurm,
                            {.script = "requeue.sbatch", .arguments = e2e::small_training(sandbox, kSteps)});
    e2e::reach_step(sandbox, job, 30);
    slurm.call({"kill-node", victim});
    survivor.speed_up();
    const std::string end = job.end(Seconds(180));
    CAPTURE(victim, job.output());
    CHECK(end == "COMPLETED 0:0");
    CHECK(job.field("Restarts") == "1");
    CHECK_THAT(job.output(), Contains("train: resumed after step "));
    e2e::check_losses(sandbox, kSteps);
    e2e::check_no_leftovers(slurm);
}

TEST_CASE("elastic.sbatch goes on with its spare after the failure of a node", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("slurm-spare");
    const e2e::Slurm slurm(sandbox, 3);
    const SlowNode first(slurm, "n1");
    const e2e::SlurmJob job(
        sandbox, slurm,
        {.script = "elastic.sbatch", .options = {"--nodes=3"}, .arguments = e2e::small_training(sandbox, kSteps)});
    e2e::reach_step(sandbox, job, 30);
    REQUIRE(e2e::eventually(Seconds(30), [&] { return job.output().find(": spare: ") != std::string::npos; }));
    const std::string victim = job.output().find("this is node 1 of 2 (n2)") != std::string::npos ? "n2" : "n3";
    slurm.call({"kill-node", victim});
    first.speed_up();
    const std::string end = job.end(Seconds(120));
    CAPTURE(victim, job.output());
    CHECK(end == "COMPLETED 0:0");
    CHECK(job.field("Restarts") == "0");
    CHECK_THAT(job.output(), Contains(" takes the place of " + victim) && Contains("train: resumed after step "));
    e2e::check_losses(sandbox, kSteps);
    e2e::check_no_leftovers(slurm);
}

TEST_CASE("elastic.sbatch succeeds with a spare that was not needed", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("slurm-unneeded");
    const e2e::Slurm slurm(sandbox, 3);
    const e2e::SlurmJob job(
        sandbox, slurm,
        {.script = "elastic.sbatch", .options = {"--nodes=3"}, .arguments = e2e::small_training(sandbox, kSteps)});
    CHECK(job.end(Seconds(120)) == "COMPLETED 0:0");
    CHECK_THAT(job.output(), Contains("exit code 94") && !Contains("attempt 1"));
    e2e::check_no_leftovers(slurm);
}

TEST_CASE("elastic.sbatch without a spare waits, explains, and is requeued", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("slurm-no-spare");
    const e2e::Slurm slurm(sandbox, 3);
    const SlowNode survivor(slurm, "n1");
    const e2e::SlurmJob job(sandbox, slurm,
                            {.script = "elastic.sbatch",
                             .options = {"--nodes=2"},
                             .arguments = e2e::small_training(sandbox, kSteps),
                             .edits = {{"spares=1", "spares=0"}, {"join_timeout=120", "join_timeout=4"}}});
    e2e::reach_step(sandbox, job, 30);
    slurm.call({"kill-node", "n2"});
    survivor.speed_up();
    const std::string end = job.end(Seconds(180));
    CAPTURE(job.output());
    CHECK(end == "COMPLETED 0:0");
    CHECK(job.field("Restarts") == "1");
    CHECK_THAT(job.output(), Contains("1 of 2 nodes are here, missing: n2 (node n2 was lost: ") &&
                                 Contains("waiting 4 s for another node in its place") &&
                                 Contains("attempt 1 of 20 ended with code 69; requeueing") &&
                                 Contains("train: resumed after step "));
    e2e::check_losses(sandbox, kSteps);
    e2e::check_no_leftovers(slurm);
}

TEST_CASE("elastic.sbatch is requeued when the node of the script has failed", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("slurm-first-node");
    const e2e::Slurm slurm(sandbox, 3);
    const SlowNode survivor(slurm, "n2");
    const e2e::SlurmJob job(sandbox, slurm,
                            {.script = "elastic.sbatch",
                             .options = {"--nodes=2"},
                             .arguments = e2e::small_training(sandbox, kSteps),
                             .edits = {{"spares=1", "spares=0"}, {"sleep 60", "sleep 2"}}});
    e2e::reach_step(sandbox, job, 30);
    slurm.call({"kill-node", "n1"});
    survivor.speed_up();
    const std::string end = job.end(Seconds(180));
    CAPTURE(job.output());
    CHECK(end == "COMPLETED 0:0");
    CHECK(job.field("Restarts") == "1");
    CHECK_THAT(job.output(), Contains("train: resumed after step "));
    e2e::check_losses(sandbox, kSteps);
    e2e::check_no_leftovers(slurm);
}

TEST_CASE("preemptible.sbatch is requeued before its time limit, and finishes", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("slurm-limit");
    const e2e::Slurm slurm(sandbox, 2);
    const SlowNode second(slurm, "n2");
    const e2e::SlurmJob job(sandbox, slurm,
                            {.script = "preemptible.sbatch",
                             .options = {"--signal=USR1@20", "--time=10"},
                             .arguments = e2e::small_training(sandbox, kSteps)});
    e2e::reach_step(sandbox, job, 30);
    const std::string limit = fmt::format("TimeLimit={}", minutes_with_room(job.field("RunTime")));
    slurm.call({"exec", "--", "scontrol", "update", "JobId=" + job.id(), limit});
    const bool requeued = job.is_requeued(Seconds(150));
    INFO(job.output());
    REQUIRE(requeued);
    second.speed_up();
    slurm.call({"exec", "--", "scontrol", "update", "JobId=" + job.id(), "TimeLimit=10"});
    CHECK(job.end(Seconds(120)) == "COMPLETED 0:0");
    CHECK(job.field("Restarts") == "1");
    check_saved_step(job.output());
    CHECK_THAT(job.output(), !Contains("DUE TO TIME LIMIT"));
    e2e::check_losses(sandbox, kSteps);
    e2e::check_no_leftovers(slurm);
}

TEST_CASE("preemptible.sbatch is requeued at a preemption, and finishes", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("slurm-preemption");
    const e2e::Slurm slurm(sandbox, 2);
    const SlowNode second(slurm, "n2");
    const e2e::SlurmJob job(sandbox, slurm,
                            {.script = "preemptible.sbatch",
                             .options = {"--partition=low"},
                             .arguments = e2e::small_training(sandbox, kSteps)});
    e2e::reach_step(sandbox, job, 30);
    slurm.call({"exec", "--", "sbatch", "--partition=high", "--nodes=2", "--exclusive", "--time=1",
                "--output=/dev/null", "--wrap=true"});
    const bool requeued = job.is_requeued(Seconds(60));
    INFO(job.output());
    REQUIRE(requeued);
    second.speed_up();
    CHECK(job.end(Seconds(120)) == "COMPLETED 0:0");
    CHECK(job.field("Restarts") == "1");
    check_saved_step(job.output());
    e2e::check_losses(sandbox, kSteps);
    e2e::check_no_leftovers(slurm);
}
