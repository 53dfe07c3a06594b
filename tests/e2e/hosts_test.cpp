// The same on two virtual hosts, each with a network, host name and processes of its own. Skipped where the tools are absent.

#include <fmt/format.h>
#include <unistd.h>

#include "tests/catch.hpp"
#include "tests/e2e/ddp_script.hpp"
#include "tests/e2e/training.hpp"

namespace {

/// Virtual hosts n1, n2, … that exist as long as this object.
class Hosts {
public:
    Hosts(const e2e::Sandbox& sandbox, int count) : sandbox_(sandbox) {
        const auto up = e2e::run(sandbox, {.argv = {tool(), "up", std::to_string(count)}});
        INFO(up.out << up.err);
        REQUIRE(up.status.success());
    }
    ~Hosts() { (void)e2e::run(sandbox_, {.argv = {tool(), "down"}}); }
    Hosts(const Hosts&) = delete;
    Hosts& operator=(const Hosts&) = delete;

    [[nodiscard]] static std::string tool() { return (e2e::cluster_tools() / "hosts").string(); }

    [[nodiscard]] e2e::Command on(const std::string& host, std::vector<std::string> argv) const {
        argv.insert(argv.begin(), {tool(), "exec", host, "--"});
        return {.argv = std::move(argv), .directory = sandbox_.path()};
    }

private:
    const e2e::Sandbox& sandbox_;
};

bool skipped() {
    if (!e2e::cluster_tools().empty() && ::geteuid() == 0) return false;
    WARN("SKIPPED: no tools for virtual hosts (set DDPRUN_CLUSTER_TOOLS), or not root");
    return true;
}

std::vector<std::string> ddprun_line(const std::string& program) {
    return {(e2e::bin() / "ddprun").string(), "--nnodes", "2", "--nproc_per_node", "2", "--rdzv-endpoint", "n1:29400", program};
}

}  // namespace

TEST_CASE("an unmodified DistributedDataParallel script trains on two hosts, the same line on both", "[e2e]") {
    if (skipped()) return;
    const e2e::Sandbox sandbox("hosts-pytorch");
    if (!e2e::torch_is_installed(sandbox)) {
        WARN("SKIPPED: python3-torch is not installed");
        return;
    }
    e2e::write_file(sandbox.path() / "script.py", e2e::kDdpScript);
    {
        const Hosts hosts(sandbox, 2);
        e2e::Process second(sandbox, hosts.on("n2", ddprun_line("script.py")));  // the host of the daemon comes last
        e2e::Process first(sandbox, hosts.on("n1", ddprun_line("script.py")));
        const auto first_status = first.wait(e2e::Seconds(90));
        const auto second_status = second.wait(e2e::Seconds(30));
        CAPTURE(first.out(), first.err(), second.out(), second.err());
        CHECK(first_status.exit_code() == 0);
        CHECK(second_status.exit_code() == 0);
        e2e::check_ddp_output(first.out() + second.out(), 4);
        CHECK_THAT(first.err(), Catch::Contains("INSECURE"));
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("the example trains on two hosts and ends when one is lost for good", "[e2e]") {
    if (skipped()) return;
    const e2e::Sandbox sandbox("hosts-train");
    const Hosts hosts(sandbox, 3);
    e2e::Training training{.steps = 300, .checkpoint_dir = (sandbox.path() / "ckpt").string(), .losses = sandbox.path() / "losses"};
    training.launch = {"--nnodes", "2:3", "--nproc_per_node", "1", "--rdzv-endpoint", "n1:29400"};
    training.global_batch = 48;
    const auto argv = e2e::command_of(training).argv;
    e2e::Process first(sandbox, hosts.on("n1", argv));
    e2e::Process second(sandbox, hosts.on("n2", argv));
    e2e::Process third(sandbox, hosts.on("n3", argv));
    REQUIRE(e2e::eventually(e2e::Seconds(60), [&] { return e2e::read_losses(training.losses).contains(25); }));

    // A power cut: the network is gone before the processes, so that nobody hears a goodbye.
    REQUIRE(e2e::run(sandbox, {.argv = {Hosts::tool(), "kill", "n3"}}).status.success());
    const auto first_status = first.wait(e2e::Seconds(90));
    const auto second_status = second.wait(e2e::Seconds(30));
    CAPTURE(first.out(), first.err(), second.out(), second.err());
    CHECK(first_status.exit_code() == 0);
    CHECK(second_status.exit_code() == 0);
    CHECK(e2e::read_losses(training.losses).size() == 300);
    CHECK(e2e::final_json(first.out()).at("world_size").to_number<int>() == 2);
}
