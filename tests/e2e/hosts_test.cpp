// The same on two virtual hosts, each with a network, host name and processes of its own. Skipped where the tools are
// absent.

#include "tests/e2e/hosts.hpp"
#include "tests/catch.hpp"
#include "tests/e2e/ddp_script.hpp"
#include "tests/e2e/training.hpp"

namespace {

std::vector<std::string> ddprun_line(const std::string& program) {
    return {(e2e::bin() / "ddprun").string(),
            "--nnodes",
            "2",
            "--nproc_per_node",
            "2",
            "--rdzv-endpoint",
            "n1:29400",
            program};
}

}  // namespace

TEST_CASE("an unmodified DistributedDataParallel script trains on two hosts, the same line on both", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("hosts-pytorch");
    if (!e2e::torch_is_installed(sandbox)) {
        WARN("SKIPPED: python3-torch is not installed");
        return;
    }
    e2e::write_file(sandbox.path() / "script.py", e2e::kDdpScript);
    {
        const e2e::Hosts hosts(sandbox, 2);
        e2e::Process second(sandbox, hosts.on("n2", ddprun_line("script.py")));  // the host of the daemon starts last
        e2e::Process first(sandbox, hosts.on("n1", ddprun_line("script.py")));
        const auto first_status = first.wait(e2e::Seconds(90));
        const auto second_status = second.wait(e2e::Seconds(30));
        CAPTURE(first.out(), first.err(), second.out(), second.err());
        CHECK(first_status.exit_code() == 0);
        CHECK(second_status.exit_code() == 0);
        e2e::check_ddp_output(first.out() + second.out(), 4);
        CHECK_THAT(first.err(), !Catch::Contains("INSECURE"));  // its stores serve these two hosts alone
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("NCCL and gloo of workers on two hosts get the interface that leads to the other one", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("hosts-interface");
    {
        const e2e::Hosts hosts(sandbox, 2);
        auto line = ddprun_line("sh");
        line.insert(line.end(), {"-c", "echo $NCCL_SOCKET_IFNAME $GLOO_SOCKET_IFNAME"});
        e2e::Process second(sandbox, hosts.on("n2", line));
        e2e::Process first(sandbox, hosts.on("n1", line));  // it hosts the daemon, and reaches it over its own address
        CHECK(first.wait(e2e::Seconds(60)).exit_code() == 0);
        CHECK(second.wait(e2e::Seconds(60)).exit_code() == 0);
        CHECK(first.out() == "=eth0 eth0\n=eth0 eth0\n");
        CHECK(second.out() == "=eth0 eth0\n=eth0 eth0\n");
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("the example trains on two hosts and ends when one is lost for good", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("hosts-train");
    const e2e::Hosts hosts(sandbox, 3);
    e2e::Training training{
        .steps = 300, .checkpoint_dir = (sandbox.path() / "ckpt").string(), .losses = sandbox.path() / "losses"};
    training.launch = {"--nnodes", "2:3", "--nproc_per_node", "1", "--rdzv-endpoint", "n1:29400"};
    training.global_batch = 48;
    const auto argv = e2e::command_of(training).argv;
    e2e::Process first(sandbox, hosts.on("n1", argv));
    e2e::Process second(sandbox, hosts.on("n2", argv));
    e2e::Process third(sandbox, hosts.on("n3", argv));
    REQUIRE(e2e::eventually(e2e::Seconds(60), [&] { return e2e::read_losses(training.losses).contains(25); }));

    // A power cut: the network is gone before the processes, so that no connection is closed.
    hosts.call({"kill", "n3"});
    const auto first_status = first.wait(e2e::Seconds(90));
    const auto second_status = second.wait(e2e::Seconds(30));
    CAPTURE(first.out(), first.err(), second.out(), second.err());
    CHECK(first_status.exit_code() == 0);
    CHECK(second_status.exit_code() == 0);
    CHECK(e2e::read_losses(training.losses).size() == 300);
    CHECK(e2e::final_json(first.out()).at("world_size").to_number<int>() == 2);
}
