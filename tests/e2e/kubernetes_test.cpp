// The command of scripts/k8s/jobset.yaml on hosts with the names of its pods. Skipped where the tools for virtual hosts
// are absent. No Kubernetes is used.

#include <sys/stat.h>

#include <sstream>

#include "tests/catch.hpp"
#include "tests/e2e/hosts.hpp"

namespace {

/// Returns the command of the pod with this index, with checkpoints in the sandbox; empty: a Python module is missing.
std::vector<std::string> command_of_pod(const e2e::Sandbox& sandbox, int index) {
    const auto outcome = e2e::run(
        sandbox, {.argv = {(e2e::source() / "tests/k8s/check_jobset").string(), "--command", std::to_string(index)}});
    CAPTURE(outcome.status.exit_code(), outcome.out, outcome.err);
    if (outcome.status.exit_code() == 77) return {};
    REQUIRE(outcome.status.success());
    std::vector<std::string> argv;
    std::istringstream lines(outcome.out);
    for (std::string line; std::getline(lines, line);) argv.push_back(line);
    REQUIRE(argv.size() > 2);
    REQUIRE(argv.front() == "ddprun");
    REQUIRE(argv.back() == "--checkpoint-dir=/checkpoints");
    argv.back() = "--checkpoint-dir=" + (sandbox.path() / "checkpoints").string();
    argv.insert(argv.end(), {"--steps", "20", "--hidden1", "64", "--hidden2", "64", "--progress", "none"});
    return argv;
}

}  // namespace

TEST_CASE("the pods of the JobSet find each other by the name of the first one", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("kubernetes");
    const auto first = command_of_pod(sandbox, 0);
    const auto second = command_of_pod(sandbox, 1);
    if (first.empty()) {
        WARN("SKIPPED: python3-yaml or python3-jsonschema is not installed");
        return;
    }
    const auto key = sandbox.path() / "job-key";
    e2e::write_file(key, std::string(64, '7'));
    REQUIRE(::chmod(key.c_str(), 0400) == 0);
    const e2e::Hosts hosts(sandbox, 2);
    for (const std::string host : {"n1", "n2"})
        hosts.call({"exec", host, "--", "sh", "-c", "echo 10.77.0.1 train-node-0-0.train >> /etc/hosts"});
    const auto pod = [&](const std::string& host, const std::vector<std::string>& argv) {
        e2e::Command command = hosts.on(host, argv);
        command.env = {{"DDPRUN_JOB_KEY_FILE", key.string()},
                       {"PATH", e2e::bin().string() + ":" + std::getenv("PATH")}};
        return command;
    };
    e2e::Process late(sandbox, pod("n2", second));  // begins first, and waits
    CHECK(e2e::eventually(e2e::Seconds(30),
                          [&] { return late.err().find("waiting for the rendez") != std::string::npos; }));
    e2e::Process early(sandbox, pod("n1", first));
    for (e2e::Process* const process : {&early, &late}) {
        const auto status = process->wait(e2e::Seconds(60));
        CAPTURE(process->err());
        CHECK(status.exit_code() == 0);
    }
    CHECK_THAT(early.out(), Catch::Contains(R"({"world_size":4,"steps":20,)"));
    CHECK_THAT(late.err(), Catch::Contains("this is node 1 of 2 (n2): ranks 2-3 of 4"));
}
