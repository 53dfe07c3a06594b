// Data parallelism must not change the mathematics: one rank or eight, the same global batch gives the same curve.

#include <cmath>

#include "tests/catch.hpp"
#include "tests/e2e/training.hpp"

namespace {

std::map<int, std::string> losses_of(const e2e::Sandbox& sandbox, const std::string& name,
                                     std::vector<std::string> launch, std::vector<std::string> more = {}) {
    const e2e::Training training{.launch = std::move(launch), .losses = sandbox.path() / name, .more = std::move(more)};
    const e2e::Outcome outcome = e2e::run(sandbox, e2e::command_of(training));
    INFO(name << "\nstdout:\n" << outcome.out << "stderr:\n" << outcome.err);
    REQUIRE(outcome.status.exit_code() == 0);
    auto losses = e2e::read_losses(training.losses);
    REQUIRE(losses.size() == 40);
    return losses;
}

}  // namespace

TEST_CASE("8 ranks on 2 nodes follow the loss curve of 1 rank, and do so bit for bit when run again", "[e2e]") {
    const e2e::Sandbox sandbox("equality");
    const std::vector<std::string> launch{"--nnodes", "2", "--nproc_per_node", "4", "--local-nodes"};
    const auto eight = losses_of(sandbox, "eight", launch);
    const auto again = losses_of(sandbox, "again", launch);
    const auto one = losses_of(sandbox, "one", {});

    CHECK(eight == again);
    for (const auto& [step, loss] : one) {
        CAPTURE(step, loss, eight.at(step));
        CHECK(std::stod(eight.at(step)) == Approx(std::stod(loss)).epsilon(1e-4));
    }
    CHECK(std::stod(one.at(40)) < std::stod(one.at(1)));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("8 ranks that divide the model follow the loss curve of 1 rank within 1e-6, twice with the same bits",
          "[e2e]") {
    const e2e::Sandbox sandbox("sharded");
    const bool is_one_node = GENERATE(false, true);  // on one node units are mapped, else copied
    const std::vector<std::string> two_nodes{"--nnodes", "2", "--nproc_per_node", "4", "--local-nodes"};
    const std::vector<std::string> launch = is_one_node ? std::vector<std::string>{"--nproc_per_node", "8"} : two_nodes;
    const std::vector<std::string> whole{"--optimizer", is_one_node ? "adamw" : "sgd"};
    const std::vector<std::string> full{"--optimizer", whole.back(), "--sharding", "full"};
    const auto eight = losses_of(sandbox, "eight", launch, full);
    CHECK(losses_of(sandbox, "again", launch, full) == eight);
    CHECK(losses_of(sandbox, "whole", launch, whole) == eight);  // without --sharding, too
    const auto one = losses_of(sandbox, "one", {}, whole);
    for (const auto& [step, loss] : one) {
        CAPTURE(step, loss, eight.at(step));
        CHECK(std::stod(eight.at(step)) == Approx(std::stod(loss)).epsilon(0).margin(1e-6));
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("nodes with different numbers of workers train the same curve too", "[e2e]") {
    const e2e::Sandbox sandbox("uneven");
    const std::string endpoint = "127.0.0.1:" + std::to_string(e2e::free_port());
    e2e::Training three{
        .launch = {"--nnodes", "2", "--nproc_per_node", "3", "--rdzv-endpoint", endpoint, "--node-rank", "0"},
        .losses = sandbox.path() / "uneven"};
    e2e::Training one = three;
    one.launch = {"--nnodes", "2", "--nproc_per_node", "1", "--rdzv-endpoint", endpoint, "--node-rank", "1"};
    e2e::Process first(sandbox, e2e::command_of(three));
    e2e::Process second(sandbox, e2e::command_of(one));
    const int first_code = first.wait(e2e::Seconds(60)).exit_code();
    const int second_code = second.wait(e2e::Seconds(60)).exit_code();
    INFO(first.err() << second.err());
    CHECK(first_code == 0);
    CHECK(second_code == 0);
    const auto uneven = e2e::read_losses(three.losses);
    for (const auto& [step, loss] : losses_of(sandbox, "alone", {})) {
        REQUIRE(uneven.contains(step));
        CHECK(std::stod(uneven.at(step)) == Approx(std::stod(loss)).epsilon(1e-4));
    }
    CHECK(sandbox.leftovers() == "");
}
