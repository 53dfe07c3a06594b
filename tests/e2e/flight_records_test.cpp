// A job that stalls reports why, and ddpctl shows what its ranks are doing.

#include <fmt/format.h>
#include <signal.h>
#include <boost/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/catch.hpp"
#include "tests/e2e/training.hpp"

using Catch::Contains;

namespace {

/// Two emulated nodes of two ranks, with more steps than any test waits for.
e2e::Training long_training(const e2e::Sandbox& sandbox, const std::string& warning) {
    return {.launch = {"--nnodes", "2", "--nproc_per_node", "2", "--local-nodes", "--stall-warning", warning},
            .steps = 100'000,
            .losses = sandbox.path() / "losses"};
}

std::size_t count(const std::string& text, const std::string& part) {
    std::size_t found = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
}

/// Splits the command at the end of a warning into arguments.
std::vector<std::string> advised_command(const std::string& err) {
    const auto at = err.find("ddpctl dump --rdzv-endpoint ");
    REQUIRE(at != std::string::npos);
    const std::string endpoint = err.substr(at + 28, err.find(']', at) - at - 28);
    return {(e2e::bin() / "ddpctl").string(), "dump", "--rdzv-endpoint", endpoint};
}

}  // namespace

TEST_CASE("a stopped rank is reported once, and the job goes on when it does", "[e2e]") {
    const e2e::Sandbox sandbox("stalled");
    const e2e::Training training = long_training(sandbox, "5");
    e2e::Process job(sandbox, e2e::command_of(training));
    e2e::reach_step(job, training, 5);
    const auto victim = e2e::worker(sandbox, 3);
    REQUIRE(victim);
    // On a busy machine another rank may wait that long as well; such lines are true, and not counted here.
    const std::string line = "LAGGING rank 3 (node1)";
    const std::size_t earlier = count(job.err(), line);
    REQUIRE(::kill(*victim, SIGSTOP) == 0);
    const bool told =
        e2e::eventually(e2e::Seconds(40), [&] { return job.err().find("is stopped") != std::string::npos; });
    INFO("stderr:\n" << job.err());
    REQUIRE(told);
    CHECK_THAT(job.err(), Contains(line) && Contains("is stopped (a signal, a debugger)"));

    const auto dump = e2e::run(sandbox, {.argv = advised_command(job.err())}, e2e::Seconds(30));
    INFO("dump:\n" << dump.out << dump.err);
    CHECK(dump.status.exit_code() == 0);
    CHECK_THAT(dump.out, Contains("4 ranks on 2 nodes") && Contains("rank 3 (node1)") && Contains("process stopped"));

    const int before = e2e::read_losses(training.losses).rbegin()->first;
    REQUIRE(::kill(*victim, SIGCONT) == 0);
    CHECK(e2e::eventually(e2e::Seconds(30),
                          [&] { return e2e::read_losses(training.losses).rbegin()->first > before + 5; }));
    CHECK(count(job.err(), line) == earlier + 1);  // two nodes, two groups that wait: one line
    job.signal(SIGINT);
    CHECK(job.wait(e2e::Seconds(60)).exit_code() == 130);
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("ddpctl dump shows a running job, writes a file per rank, and disturbs nothing", "[e2e]") {
    const e2e::Sandbox sandbox("dump");
    const e2e::Training training = long_training(sandbox, "30");
    e2e::Process job(sandbox, e2e::command_of(training));
    e2e::reach_step(job, training, 5);
    const auto member = e2e::worker(sandbox, 0);
    REQUIRE(member);
    std::string environment = e2e::read_file(fmt::format("/proc/{}/environ", *member));
    const auto at = environment.find("DDPRUN_ENDPOINT=");
    REQUIRE(at != std::string::npos);
    const std::string endpoint = environment.c_str() + at + 16;
    const std::filesystem::path folder = sandbox.path() / "flight records";
    std::filesystem::create_directory(folder);
    std::ofstream(folder / "rank_4.json") << R"({"version":"2.10","comm_lib_version":"ddprun 0.1.0"})";
    std::ofstream(folder / "rank_5.json") << "{}";
    const auto dump = e2e::run(
        sandbox,
        {.argv = {(e2e::bin() / "ddpctl").string(), "dump", "--rdzv-endpoint", endpoint, "--output", folder.string()}},
        e2e::Seconds(30));
    INFO("dump:\n" << dump.out << dump.err << "job:\n" << job.err());
    CHECK(dump.status.exit_code() == 0);
    CHECK_THAT(dump.out, Contains("4 ranks on 2 nodes") && Contains("RUNNING") && Contains("4 files in "));
    for (int rank = 0; rank < 4; ++rank) {
        CAPTURE(rank);
        const auto record = boost::json::parse(e2e::read_file(folder / fmt::format("rank_{}.json", rank)));
        CHECK(record.at("version") == "2.10");
        CHECK(record.at("pg_config").as_object().contains("world"));
        CHECK(record.at("entries").as_array().size() > 5);
        const auto has_usual_deadline = [](const auto& entry) { return entry.at("timeout_ms") == 1'800'000; };
        CHECK(std::ranges::any_of(record.at("entries").as_array(), has_usual_deadline));
    }
    CHECK_FALSE(std::filesystem::exists(folder / "rank_4.json"));  // of an earlier job, which had more ranks
    CHECK(std::filesystem::exists(folder / "rank_5.json"));        // not ours
    const int before = e2e::read_losses(training.losses).rbegin()->first;
    CHECK(e2e::eventually(e2e::Seconds(30),
                          [&] { return e2e::read_losses(training.losses).rbegin()->first > before + 5; }));
    CHECK(job.err().find("restart") == std::string::npos);
    job.signal(SIGINT);
    CHECK(job.wait(e2e::Seconds(60)).exit_code() == 130);
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("ddpctl reports that there is no job, or none at that address", "[e2e]") {
    const e2e::Sandbox sandbox("no-job");
    const std::string ddpctl = (e2e::bin() / "ddpctl").string();
    const auto absent = e2e::run(sandbox,
                                 {.argv = {ddpctl, "dump", "--timeout", "0.5", "--rdzv-endpoint",
                                           fmt::format("127.0.0.1:{}", e2e::free_port())}},
                                 e2e::Seconds(30));
    CHECK(absent.status.exit_code() == 69);
    CHECK_THAT(absent.err, Contains("ddpctl: cannot reach the rendezvous daemon at 127.0.0.1:"));
    const auto usage = e2e::run(sandbox, {.argv = {ddpctl}}, e2e::Seconds(30));
    CHECK(usage.status.exit_code() == 2);
}
