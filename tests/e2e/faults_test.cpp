// Faults of a cluster: killed workers, agents and nodes, and a scheduler's signals.

#include <fmt/format.h>
#include <signal.h>

#include <map>

#include "common/system/process_state.hpp"
#include "tests/catch.hpp"
#include "tests/e2e/training.hpp"

namespace {

constexpr int kSteps = 300;  // long enough that a kill lands in the middle on a fast machine too

e2e::Training long_training(const e2e::Sandbox& sandbox, std::vector<std::string> launch, const std::string& name) {
    return {.launch = std::move(launch),
            .steps = kSteps,
            .checkpoint_dir = (sandbox.path() / (name + ".ckpt")).string(),
            .checkpoint_every = 10,
            .losses = sandbox.path() / name};
}

}  // namespace

TEST_CASE("after a worker is killed all restart from the checkpoint and the curve continues bit for bit", "[e2e]") {
    const bool shards = GENERATE(false, true);
    CAPTURE(shards);
    const e2e::Sandbox sandbox("worker-killed");
    const std::vector<std::string> launch{"--nnodes",       "2", "--nproc_per_node", "4", "--local-nodes",
                                          "--max-restarts", "1"};
    const std::vector<std::string> more =
        shards ? std::vector<std::string>{"--sharding", "full"} : std::vector<std::string>();
    e2e::Training calm = long_training(sandbox, launch, "calm");
    calm.more = more;
    REQUIRE(e2e::run(sandbox, e2e::command_of(calm)).status.exit_code() == 0);

    e2e::Training disturbed = long_training(sandbox, launch, "disturbed");
    disturbed.more = more;
    e2e::Process job(sandbox, e2e::command_of(disturbed));
    e2e::reach_step(job, disturbed, 25);
    const auto victim = e2e::worker(sandbox, 5);
    REQUIRE(victim);
    REQUIRE(::kill(*victim, SIGKILL) == 0);

    const int code = job.wait(e2e::Seconds(120)).exit_code();
    INFO("stdout:\n" << job.out() << "stderr:\n" << job.err());
    CHECK(code == 0);
    CHECK(e2e::final_json(job.out()).at("restarts").to_number<int>() == 1);
    CHECK_THAT(job.err(), Catch::Contains("(rank 5 on node1 was killed by SIGKILL; ") &&
                              Catch::Contains(" waited for it ") && !Catch::Contains("DEAD rank"));
    CHECK(e2e::read_losses(disturbed.losses) == e2e::read_losses(calm.losses));
    CHECK(e2e::read_losses(calm.losses).size() == kSteps);
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("without a restart left a killed worker ends the job with its rank, host and signal and exit code 137",
          "[e2e]") {
    const e2e::Sandbox sandbox("no-restart");
    const e2e::Training training = long_training(
        sandbox, {"--nnodes", "2", "--nproc_per_node", "4", "--local-nodes", "--max-restarts", "0"}, "losses");
    e2e::Process job(sandbox, e2e::command_of(training));
    e2e::reach_step(job, training, 5);
    const auto victim = e2e::worker(sandbox, 3);
    REQUIRE(victim);
    REQUIRE(::kill(*victim, SIGKILL) == 0);

    const int code = job.wait(e2e::Seconds(60)).exit_code();
    INFO("stdout:\n" << job.out() << "stderr:\n" << job.err());
    CHECK(code == 137);
    CHECK_THAT(job.err(), Catch::Contains("rank 3"));
    CHECK_THAT(job.err(), Catch::Contains("SIGKILL"));
    CHECK_THAT(job.err(), Catch::Contains("node0"));
    // Its last operation, although its flight record was not requested before it was killed.
    CHECK_THAT(job.err(), Catch::Contains("\nDEAD rank 3 (node0, killed by SIGKILL): ") && Catch::Contains("world'"));
    CHECK_THAT(job.err(), Catch::Contains(" waited for it ") && !Catch::Contains("at its end"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("when one of three nodes dies as a whole the other two go on and finish", "[e2e]") {
    const e2e::Sandbox sandbox("node-killed");
    e2e::Training training =
        long_training(sandbox, {"--nnodes", "2:3", "--nproc_per_node", "2", "--local-nodes"}, "losses");
    training.global_batch = 48;  // divisible by 6 and by 4 ranks
    e2e::Process job(sandbox, e2e::command_of(training));
    e2e::reach_step(job, training, 25);
    const auto member = e2e::worker(sandbox, 2);
    REQUIRE(member);
    for (const pid_t pid : e2e::processes_of_node_of(*member)) ::kill(pid, SIGKILL);

    const int code = job.wait(e2e::Seconds(120)).exit_code();
    INFO("stdout:\n" << job.out() << "stderr:\n" << job.err());
    CHECK(code == 0);
    const auto result = e2e::final_json(job.out());
    CHECK(result.at("world_size").to_number<int>() == 4);
    CHECK(result.at("steps").to_number<int>() == kSteps);
    CHECK(e2e::read_losses(training.losses).size() == kSteps);
    // The other nodes' trainers have failed because of it, before its loss was known.
    CHECK_THAT(job.err(), Catch::Contains("started again: 4 workers on 2 nodes (node1 was lost") &&
                              !Catch::Contains("exited with code"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("an agent that is killed leaves no worker behind", "[e2e]") {
    const e2e::Sandbox sandbox("agent-killed");
    const e2e::Training training =
        long_training(sandbox, {"--standalone", "--nproc_per_node", "2", "--max-restarts", "0"}, "losses");
    e2e::Process job(sandbox, e2e::command_of(training));
    e2e::reach_step(job, training, 5);
    const auto member = e2e::worker(sandbox, 1);
    REQUIRE(member);
    REQUIRE(::kill(e2e::processes_of_node_of(*member).at(1), SIGKILL) == 0);

    const int code = job.wait(e2e::Seconds(60)).exit_code();
    INFO("stderr:\n" << job.err());
    CHECK(code == 137);
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("whichever process of ddprun is killed takes what is below it along, and an emulated cluster ends", "[e2e]") {
    const std::string victim = GENERATE(as<std::string>(), "agent", "guard", "launcher", "guard of the launcher");
    CAPTURE(victim);
    const e2e::Sandbox sandbox("guard-killed");
    const e2e::Training training = long_training(
        sandbox, {"--nnodes", "2", "--nproc_per_node", "2", "--local-nodes", "--max-restarts", "1"}, "losses");
    e2e::Process job(sandbox, e2e::command_of(training));
    e2e::reach_step(job, training, 5);
    const auto member = e2e::worker(sandbox, 3);
    REQUIRE(member);
    const std::vector<pid_t> node = e2e::processes_of_node_of(*member);
    const pid_t launcher = ddprun::parent_of(node.at(0));
    REQUIRE(ddprun::parent_of(launcher) == job.pid());  // the user's process is the uppermost guard
    const bool whole_job = victim.ends_with("launcher");
    const std::map<std::string, pid_t> pids{
        {"agent", node.at(1)}, {"guard", node.at(0)}, {"launcher", launcher}, {"guard of the launcher", job.pid()}};
    REQUIRE(::kill(pids.at(victim), SIGKILL) == 0);
    if (whole_job) CHECK(e2e::eventually(e2e::Seconds(5), [&] { return sandbox.pids("train").empty(); }));

    // --nnodes 2 cannot go on with one node, and an emulated node is not replaced.
    const int code = job.wait(e2e::Seconds(60)).exit_code();
    INFO("stderr:\n" << job.err());
    CHECK(code == (whole_job ? 137 : 69));
    if (!whole_job) CHECK_THAT(job.err(), Catch::Contains("and an emulated node is not replaced (node1 "));
    if (victim == "launcher")
        CHECK_THAT(job.err(), Catch::Contains(fmt::format("(pid {}) was killed by SIGKILL", launcher)));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("Ctrl-C and a scheduler's SIGTERM end the whole job in an orderly way", "[e2e]") {
    const int signal = GENERATE(SIGINT, SIGTERM);
    CAPTURE(signal);
    const e2e::Sandbox sandbox("stopped");
    const e2e::Training training = long_training(
        sandbox, {"--nnodes", "2", "--nproc_per_node", "2", "--local-nodes", "--max-restarts", "3"}, "losses");
    e2e::Process job(sandbox, e2e::command_of(training));
    e2e::reach_step(job, training, 5);
    job.signal(signal);
    const int code = job.wait(e2e::Seconds(60)).exit_code();
    INFO("stderr:\n" << job.err());
    CHECK(code == 128 + signal);
    CHECK(sandbox.leftovers() == "");
}
