// The job scripts of scripts/slurm in clusters without failures. Skipped where the tools for SLURM are absent.

#include <sys/stat.h>

#include <filesystem>

#include "tests/catch.hpp"
#include "tests/e2e/slurm_job.hpp"

namespace {

using Catch::Contains;
using e2e::Seconds;

// The program in the scripts that requeue the job, to be replaced by another one.
const std::string kTrain = R"(train --checkpoint-dir "checkpoints-$SLURM_JOB_ID" "$@")";

// Of train: 20 steps of a small model.
const std::vector<std::string> kArguments{"--steps", "20", "--hidden1", "64", "--hidden2", "64"};

}  // namespace

TEST_CASE("plain.sbatch trains on two nodes, as root and as an ordinary user", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("slurm-plain");
    const std::string home = e2e::home_of_nobody(sandbox);
    {
        const e2e::Slurm slurm(sandbox, 2);
        for (const std::string user : {"root", "nobody"}) {
            const e2e::SlurmJob job(
                sandbox, slurm,
                {.script = "plain.sbatch", .arguments = kArguments, .env = {{"HOME", home}}, .user = user});
            const std::string end = job.end(Seconds(60));
            CAPTURE(user, job.output());
            CHECK(end == "COMPLETED 0:0");
            CHECK_THAT(job.output(), Contains(R"({"world_size":4,"steps":20,)"));
        }
        e2e::check_no_leftovers(slurm);
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("container.sbatch starts a container on each node", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("slurm-container");
    // Stands in for Apptainer, which this machine does not have: checks the options and runs the command.
    const auto apptainer = sandbox.path() / "bin" / "apptainer";
    std::filesystem::create_directory(apptainer.parent_path());
    e2e::write_file(apptainer,
                    "#!/bin/sh\n[ \"$1 $2 $3 $4\" = \"exec --bind $PWD train.sif\" ] || exit 9\n"
                    "shift 4\necho container on $(hostname)\nexec \"$@\"\n");
    REQUIRE(::chmod(apptainer.c_str(), 0755) == 0);
    const e2e::Slurm slurm(sandbox, 2);
    const std::string path = apptainer.parent_path().string() + ":" + e2e::bin().string() + ":" + std::getenv("PATH");
    const e2e::SlurmJob job(sandbox, slurm,
                            {.script = "container.sbatch", .arguments = kArguments, .env = {{"PATH", path}}});
    CHECK(job.end(Seconds(60)) == "COMPLETED 0:0");
    CHECK_THAT(job.output(), Contains("container on n1\n") && Contains("container on n2\n") &&
                                 Contains(R"({"world_size":4,"steps":20,)"));
    e2e::check_no_leftovers(slurm);
}

TEST_CASE("interactive.sh trains as often as it is called in a shell of salloc", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("slurm-interactive");
    const e2e::Slurm slurm(sandbox, 2);
    const std::string script = (e2e::source() / "scripts/slurm/interactive.sh").string();
    const std::string lines = "export PATH=" + e2e::bin().string() + ":$PATH; " + script +
                              " --steps 20 --hidden1 64; " + script + " --steps 21 --hidden1 64";
    const auto outcome = e2e::run(sandbox, slurm.login({"salloc", "--nodes=2", "--ntasks-per-node=1",
                                                        "--cpus-per-task=4", "--time=10", "bash", "-c", lines}));
    CAPTURE(outcome.err);
    CHECK(outcome.status.exit_code() == 0);
    CHECK_THAT(outcome.out, Contains(R"({"world_size":4,"steps":20,)") && Contains(R"({"world_size":4,"steps":21,)"));
    const auto outside = e2e::run(sandbox, {.argv = {script}});
    CHECK(outside.status.exit_code() == 2);
    CHECK_THAT(outside.err, Contains("there is no allocation. Type this in the shell of salloc --nodes=2"));
    e2e::check_no_leftovers(slurm);
}

TEST_CASE("requeue.sbatch requeues a job after 69, not after a code of the program or 93, nor without end", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("slurm-codes");
    const e2e::Slurm slurm(sandbox, 2, {"--cpus", "12"});
    const auto submit = [&](const std::string& program) {
        return e2e::SlurmJob(
            sandbox, slurm,
            {.script = "requeue.sbatch", .edits = {{kTrain, program}, {"max_attempts=20", "max_attempts=2"}}});
    };
    const e2e::SlurmJob again = submit("sh -c 'exit 69'");
    const e2e::SlurmJob useless = submit("sh -c 'exit 93'");
    const e2e::SlurmJob wrong = submit("sh -c 'exit 1'");
    CHECK(useless.end(Seconds(60)) == "FAILED 93:0");
    CHECK(wrong.end(Seconds(60)) == "FAILED 1:0");
    CHECK(again.end(Seconds(90)) == "FAILED 69:0");
    for (const e2e::SlurmJob* job : {&useless, &wrong}) CHECK(job->field("Restarts") == "0");
    CHECK(again.field("Restarts") == "1");
    CHECK_THAT(again.output(), Contains("attempt 1 of 2 ended with code 69; requeueing") &&
                                   Contains("attempt 2 of 2 ended with code 69; not requeued"));
    e2e::check_no_leftovers(slurm);
}

TEST_CASE("array.sbatch requeues one task without the others, and each has its checkpoints", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("slurm-array");
    const e2e::Slurm slurm(sandbox, 2, {"--cpus", "4"});
    // Task 3 has the number of the array: with that number all tasks would be requeued. It needs a second attempt.
    const e2e::SlurmJob job(
        sandbox, slurm,
        {.script = "array.sbatch",
         .arguments = kArguments,
         .edits = {{"ddprun --nproc-per-node 2",
                    "ddprun --nproc-per-node 2 sh -c '[ $DDPRUN_RUN_ID != slurm-'$SLURM_ARRAY_JOB_ID'.0 ] || exit 69; "
                    "exec \"$@\"' sh"},
                   {" --shutdown-timeout 20", ""}}});
    for (const std::string task : {"0", "1", "2", "3"}) {
        const std::string name = job.id() + "_" + task;
        CAPTURE(task, job.output("array-" + name + ".out"));
        CHECK(job.end(Seconds(120), name) == "COMPLETED 0:0");
        CHECK(job.field("Restarts", name) == (task == "3" ? "1" : "0"));
        CHECK(std::filesystem::exists(sandbox.path() / ("checkpoints-" + name)));
    }
    e2e::check_no_leftovers(slurm);
}

TEST_CASE("scancel ends all processes within SLURM's grace, and requeue.sbatch does not requeue the job", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("slurm-scancel");
    const e2e::Slurm slurm(sandbox, 2);
    const e2e::SlurmJob job(
        sandbox, slurm,
        {.script = "requeue.sbatch",
         .edits = {{kTrain, "sh -c 'trap \"\" TERM; touch started-$RANK; while :; do sleep 1; done'"}}});
    const auto started = [&] {
        for (const char* const file : {"started-0", "started-1", "started-2", "started-3"})
            if (!std::filesystem::exists(sandbox.path() / file)) return false;
        return true;
    };
    REQUIRE(e2e::eventually(Seconds(60), started));
    REQUIRE(e2e::run(sandbox, slurm.login({"scancel", job.id()})).status.success());
    CHECK(job.end(Seconds(20)) == "CANCELLED 0:15");  // SIGTERM, and SIGKILL 5 s later
    CHECK(job.field("Restarts") == "0");
    CHECK_THAT(job.output(), !Contains("requeueing"));
    CHECK(e2e::eventually(Seconds(5), [&] { return sandbox.pids("started-").empty(); }));
    e2e::check_no_leftovers(slurm);
}
