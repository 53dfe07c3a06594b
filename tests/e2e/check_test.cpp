// `ddprun check` as an operator runs it: on emulated nodes, on virtual hosts, and with GPUs of a fake driver.

#include <signal.h>
#include <unistd.h>

#include <boost/json.hpp>

#include <algorithm>

#include "tests/catch.hpp"
#include "tests/e2e/hosts.hpp"
#include "tests/e2e/process.hpp"

namespace {

using Catch::Contains;

std::vector<std::string> check_line(std::vector<std::string> words) {
    std::vector<std::string> argv{(e2e::bin() / "ddprun").string(), "check"};
    argv.insert(argv.end(), words.begin(), words.end());
    return argv;
}

e2e::Command check(std::vector<std::string> words, std::map<std::string, std::string> environment = {}) {
    return {.argv = check_line(std::move(words)), .env = std::move(environment), .directory = {}};
}

/// Returns the environment of machines with eight GPUs each.
std::map<std::string, std::string> with_gpus(std::map<std::string, std::string> environment) {
    environment.insert({{"LD_LIBRARY_PATH", FAKE_GPU_FOLDER},
                        {"FAKE_NVML_GPUS", "8"},
                        {"FAKE_NVML_DRIVER", "550.54.15"},
                        {"FAKE_NVML_CUDA", "12040"}});
    return environment;
}

boost::json::value json_in(const std::filesystem::path& file) { return boost::json::parse(e2e::read_file(file)); }

}  // namespace

TEST_CASE("ddprun check shows one node, and two with a rank for each pair", "[e2e]") {
    const e2e::Sandbox sandbox("check");
    const auto one = e2e::run(sandbox, check({}));
    CAPTURE(one.out, one.err);
    CHECK(one.status.exit_code() == 0);
    CHECK_THAT(one.out, Catch::StartsWith("1 node, 1 rank, ddprun ") && Contains("nothing was found on this node\n"));

    const auto file = sandbox.path() / "facts.json";
    const auto two =
        e2e::run(sandbox, check({"--nnodes", "2", "--nproc-per-node", "3", "--local-nodes", "--json", file.string()}));
    CAPTURE(two.out, two.err);
    CHECK(two.status.exit_code() == 0);
    CHECK_THAT(two.out, Contains("node[0-1]") && Contains("pairs of nodes: 1 (all)") &&
                            Contains("over 6 ranks on CPUs: all sums are right") && Contains("all 2 nodes agree\n"));
    const auto json = json_in(file);
    CHECK(json.at("ok").as_bool());
    CHECK(json.at("nodes").as_array().size() == 2);
    CHECK(json.at("all_reduce").at("ranks") == 6);

    const auto only_json = e2e::run(sandbox, check({"--json=-"}));
    CHECK(only_json.status.exit_code() == 0);
    CHECK(boost::json::parse(only_json.out).at("version") == 1);
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("ddprun check finds a limit that is too low for the job, once and without a restart", "[e2e]") {
    const e2e::Sandbox sandbox("check-limit");
    const auto outcome =
        e2e::run(sandbox, {.argv = {"sh", "-c", "ulimit -Sn 200 && exec \"$@\"", "sh", (e2e::bin() / "ddprun").string(),
                                    "--nnodes=2", "--nproc-per-node=4", "--local-nodes", "--max-restarts=3", "check"}});
    CAPTURE(outcome.out, outcome.err);
    CHECK(outcome.status.exit_code() == 93);
    CHECK_THAT(outcome.out,
               Contains("\n1 finding:\n  node[0-1]: open files (ulimit -n): 200; this job needs 256. Raise"));
    CHECK_THAT(outcome.err, Contains("code 93 means that another attempt is useless") && !Contains("FAILED"));
    CHECK(std::ranges::count(outcome.err, '\n') == 1);
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("ddprun check compares GPUs and drivers, and names processes and errors on GPUs", "[e2e]") {
    const e2e::Sandbox sandbox("check-gpus");
    const std::vector<std::string> nodes{"--nnodes", "3", "--local-nodes"};
    const auto good = e2e::run(sandbox, check(nodes, with_gpus({})));
    CAPTURE(good.out, good.err);
    CHECK(good.status.exit_code() == 0);
    CHECK_THAT(good.out, Contains("node[0-2]  8 x NVIDIA H200 140 GiB") && Contains("550.54.15 (CUDA 12.4)"));

    const std::string pid = std::to_string(::getpid());
    const auto bad =
        e2e::run(sandbox, check(nodes, with_gpus({{"FAKE_NVML_DRIVER_node1", "535.54.03"},
                                                  {"FAKE_NVML_GPUS_node2", "7"},
                                                  {"FAKE_NVML_ECC_node0", "5:2"},
                                                  {"FAKE_NVML_PROCESS_node2", "3:" + pid + ":12884901888"}})));
    CAPTURE(bad.out, bad.err);
    CHECK(bad.status.exit_code() == 93);
    CHECK_THAT(bad.out,
               Contains("\n4 findings:\n") &&
                   Contains("\n  node2: GPUs: 7 x NVIDIA H200 140 GiB; 2 nodes have 8 x NVIDIA H200 140 GiB.") &&
                   Contains("\n  node1: NVIDIA driver: 535.54.03 (CUDA 12.4); 2 nodes have 550.54.15") &&
                   Contains("\n  node0: GPU 5: 2 uncorrected ECC errors.") &&
                   Contains("\n  node2: GPU 3: process " + pid + " of ") && Contains(" uses 12.0 GiB."));

    auto spare = with_gpus({{"FAKE_NVML_PROCESS", "3:" + pid + ":12884901888"}, {"CUDA_VISIBLE_DEVICES", "1,GPU-2"}});
    const auto other_gpu = e2e::run(sandbox, check(nodes, spare));
    CHECK(other_gpu.status.exit_code() == 0);
    CHECK_THAT(other_gpu.out, Contains("node[0-2]  2 x NVIDIA H200 140 GiB"));
    spare["CUDA_VISIBLE_DEVICES"] = "1,MIG-2";
    const auto unknown = e2e::run(sandbox, check(nodes, spare));
    CHECK(unknown.status.exit_code() == 93);
    CHECK_THAT(unknown.out, Contains("\n  node[0-2]: 'MIG-2' in CUDA_VISIBLE_DEVICES is not one whole GPU: all were "));

    spare["CUDA_VISIBLE_DEVICES"] = "1,3,5";  // ranks with one GPU each
    const auto two_ranks = e2e::run(sandbox, check({"--nproc-per-node", "2", "--virtual-local-rank"}, spare));
    CHECK(two_ranks.status.exit_code() == 93);
    CHECK_THAT(two_ranks.out, Catch::StartsWith("1 node, 2 ranks, ") && Contains("  2 x NVIDIA H200 140 GiB") &&
                                  Contains(": GPU 3: process " + pid));

    const auto mps_server = sandbox.path() / "nvidia-cuda-mps-server";
    std::filesystem::copy_file("/bin/sleep", mps_server);
    e2e::Process server(sandbox, {.argv = {mps_server.string(), "600"}});
    const auto with_mps = e2e::run(
        sandbox, check(nodes, with_gpus({{"FAKE_NVML_PROCESS", "3:" + std::to_string(server.pid()) + ":1048576"}})));
    CHECK(with_mps.status.exit_code() == 0);
    server.signal(SIGTERM);
    server.wait(e2e::Seconds(10));

    const auto hung = e2e::run(sandbox, check({}, with_gpus({{"FAKE_NVML_HANG", "1"}})));
    CHECK(hung.status.exit_code() == 93);
    CHECK_THAT(hung.out, Contains(": GPUs: the NVIDIA driver does not answer within 20 s. Restart the node"));

    const auto broken = e2e::run(sandbox, check(nodes, with_gpus({{"FAKE_NVML_BROKEN_node1", "1"}})));
    CHECK(broken.status.exit_code() == 93);
    CHECK_THAT(broken.out, Contains("\n1 finding:\n  node1: GPUs: none (the NVIDIA driver does not answer: nvidia-smi "
                                    "shows the reason); 2 nodes have 8 x NVIDIA H200 140 GiB."));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("ddprun check refuses a wrong command line, and starts a user's ./check", "[e2e]") {
    const e2e::Sandbox sandbox("check-input");
    const auto program = e2e::run(sandbox, check({"--nnodes", "1", "train"}));
    CHECK(program.status.exit_code() == 2);
    CHECK_THAT(program.err, Catch::StartsWith("ddprun: check: unexpected argument 'train'. "));
    const auto option = e2e::run(sandbox, check({"--jsn", "x"}));
    CHECK(option.status.exit_code() == 2);
    CHECK_THAT(option.err, Contains("--jsn: no such option."));
    const auto file = e2e::run(sandbox, check({"--nproc-per-node", "2", "--json", "/nope/x"}));
    CHECK(file.status.exit_code() == 2);
    CHECK(file.out == "");
    const auto unwritten = sandbox.path() / "unwritten.json";
    CHECK(e2e::run(sandbox, {.argv = {(e2e::bin() / "ddp-check").string(), "--json", unwritten.string()},
                             .env = {{"RANK", "0"}, {"WORLD_SIZE", "none"}}})
              .status.exit_code() == 1);
    CHECK_FALSE(std::filesystem::exists(unwritten));
    CHECK_THAT(file.err, Contains("ddp-check: cannot write --json '/nope/x': No such file or directory. Pass a file"));
    const auto full = e2e::run(sandbox, {.argv = {"sh", "-c", (e2e::bin() / "ddp-check").string() + " >/dev/full"}});
    CHECK(full.status.exit_code() == 1);
    CHECK_THAT(full.err, Catch::StartsWith("ddp-check: cannot write to stdout: No space left on device. "));

    const auto own = sandbox.path() / "check";
    e2e::write_file(own, "#!/bin/sh\necho this is my own\n");
    std::filesystem::permissions(own, std::filesystem::perms::owner_all);
    for (const std::string& line : {std::string("./check"), "-- " + own.string()}) {
        const auto outcome = e2e::run(sandbox, {.argv = {"sh", "-c", (e2e::bin() / "ddprun").string() + " " + line},
                                                .directory = sandbox.path()});
        CHECK(outcome.out == "this is my own\n");
    }
    const auto on_path = e2e::run(sandbox, {.argv = {(e2e::bin() / "ddprun").string(), "--", "check"},
                                            .env = {{"PATH", sandbox.path().string() + ":/usr/bin:/bin"}}});
    CHECK(on_path.out == "this is my own\n");
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("on virtual hosts ddprun check names the slow one and the one with a small /dev/shm", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("check-hosts");
    const e2e::Hosts hosts(sandbox, 4);
    hosts.call({"rate", "n2", "50mbit"});
    hosts.call({"exec", "n3", "--", "mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", "/dev/shm"});
    hosts.call({"exec", "n4", "--", "ip", "link", "set", "eth0", "mtu", "1400"});
    for (const std::string host : {"n1", "n2", "n3", "n4"}) {  // each is a machine of its own
        const auto boot_id = sandbox.path() / ("boot-" + host);
        e2e::write_file(boot_id, host + "\n");
        hosts.call({"exec", host, "--", "mount", "--bind", boot_id.string(), "/proc/sys/kernel/random/boot_id"});
    }
    const auto file = sandbox.path() / "facts.json";
    const auto line = check_line({"--nnodes", "4", "--rdzv-endpoint", "n1:29400", "--json", file.string()});
    e2e::Process first(sandbox, hosts.on("n1", line));
    e2e::Process second(sandbox, hosts.on("n2", line));
    e2e::Process third(sandbox, hosts.on("n3", line));
    e2e::Process fourth(sandbox, hosts.on("n4", line));
    const std::vector codes{first.wait(e2e::Seconds(120)).exit_code(), second.wait(e2e::Seconds(30)).exit_code(),
                            third.wait(e2e::Seconds(30)).exit_code(), fourth.wait(e2e::Seconds(30)).exit_code()};
    const std::string out = first.out() + second.out() + third.out() + fourth.out();
    CAPTURE(out, first.err(), second.err());
    CHECK(codes == std::vector{93, 93, 93, 93});
    CHECK_THAT(out, Contains("\n3 findings:\n  n2: bandwidth: 0.0") &&
                        Contains("\n  n4: MTU of eth0: 1400; 3 nodes have 1500. Set the same MTU") &&
                        Contains("\n  n3: free space in /dev/shm: 64.0 MiB; workers need 256 MiB."));
    CHECK(json_in(file).at("links").as_array().size() == 6);
    CHECK_THAT(first.err() + second.err(), !Contains("FAILED"));
}
