// The CPUs and GPUs of workers, and --dry-run, with the real programs. Machines that are not here are described to
// hwloc by HWLOC_SYNTHETIC.

#include <fmt/format.h>

#include <set>
#include <sstream>

#include "common/exit_codes.hpp"
#include "common/system/cpu_set.hpp"
#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"

namespace {

namespace exit_code = ddprun::exit_code;
using Catch::Contains;
using Words = std::vector<std::string>;

constexpr const char* kShow =
    "echo \"$RANK $(sed -n 's/Cpus_allowed_list:\\t//p' /proc/self/status) $OMP_NUM_THREADS\"";

std::set<std::string> lines_of(const std::string& text) {
    std::set<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.insert(line);
    return lines;
}

/// Runs ddprun where it may use `cpu` alone.
e2e::Outcome run_on(const e2e::Sandbox& sandbox, int cpu, Words words) {
    words.insert(words.begin(), {"taskset", "-c", std::to_string(cpu), (e2e::bin() / "ddprun").string()});
    return e2e::run(sandbox, {.argv = std::move(words)});
}

e2e::Outcome dry_run(const e2e::Sandbox& sandbox, Words words, std::map<std::string, std::string> environment = {}) {
    words.insert(words.begin(), {(e2e::bin() / "ddprun").string(), "--dry-run"});
    environment.emplace("CUDA_VISIBLE_DEVICES", "");  // whatever GPUs this machine has
    return e2e::run(sandbox, {.argv = std::move(words), .env = std::move(environment), .directory = sandbox.path()});
}

}  // namespace

TEST_CASE("bound workers run on CPUs of ddprun's own affinity mask", "[e2e]") {
    const e2e::Sandbox sandbox("binding");
    const int last = *ddprun::allowed_cpu_set().rbegin();
    const std::string mode = GENERATE("node", "socket", "core-complex");
    CAPTURE(mode);
    const auto outcome = run_on(sandbox, last, {"--numa-binding", mode, "--nproc-per-node", "2", "sh", "-c", kShow});
    INFO(outcome.err);
    CHECK(outcome.status.success());
    CHECK(lines_of(outcome.out) == std::set<std::string>{fmt::format("0 {} 1", last), fmt::format("1 {} 1", last)});
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("exclusive workers of all emulated nodes get CPUs of their own", "[e2e]") {
    const e2e::Sandbox sandbox("exclusive");
    const ddprun::CpuSet allowed = ddprun::allowed_cpu_set();
    const Words words{(e2e::bin() / "ddprun").string(),
                      "--numa-binding",
                      "exclusive",
                      "--nnodes",
                      "2",
                      "--local-nodes",
                      "sh",
                      "-c",
                      kShow};
    const auto outcome = e2e::run(sandbox, {.argv = words});
    INFO(outcome.err);
    if (outcome.status.exit_code() == exit_code::kUsage) {  // one core
        CHECK_THAT(outcome.err, Contains("has 1 core for 2 workers"));
        return;
    }
    std::map<std::string, ddprun::CpuSet> cpus;  // by rank
    for (const std::string& line : lines_of(outcome.out)) {
        std::istringstream fields(line);
        std::string rank;
        std::string list;
        std::size_t threads = 0;
        fields >> rank >> list >> threads;
        cpus[rank] = ddprun::parse_number_list(list);
        CHECK(threads == cpus[rank].size());
    }
    REQUIRE(cpus.size() == 2);
    CHECK(ddprun::common_cpus(cpus["0"], cpus["1"]).empty());
    for (const auto& [rank, own] : cpus) {
        CHECK_FALSE(own.empty());
        CHECK(ddprun::common_cpus(own, allowed) == own);
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a binding that cannot be is refused before anything starts", "[e2e]") {
    const e2e::Sandbox sandbox("refused");
    const auto crowded =
        run_on(sandbox, *ddprun::allowed_cpu_set().begin(),
               {"--numa-binding", "exclusive", "--nproc-per-node", "2", "touch", sandbox.path() / "ran"});
    CHECK(crowded.status.exit_code() == exit_code::kUsage);
    CHECK_THAT(crowded.err, Catch::StartsWith("ddprun: --numa-binding exclusive: NUMA node ") &&
                                Contains("has 1 core for 2 workers, and each needs one of its own."));
    const auto elsewhere = e2e::run(
        sandbox, {.argv = {(e2e::bin() / "ddprun").string(), "--numa-binding", "node", "touch", sandbox.path() / "ran"},
                  .env = {{"HWLOC_SYNTHETIC", "numa:2 pu:2"}}});
    CHECK(elsewhere.status.exit_code() == exit_code::kUsage);
    CHECK_THAT(elsewhere.err, Contains("HWLOC_XMLFILE or HWLOC_SYNTHETIC names another machine"));
    CHECK_FALSE(std::filesystem::exists(sandbox.path() / "ran"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a value of OMP_NUM_THREADS that the user has set stays, bound or not", "[e2e]") {
    const e2e::Sandbox sandbox("threads");
    const auto outcome = e2e::run(sandbox, {.argv = {(e2e::bin() / "ddprun").string(), "--numa-binding", "node", "sh",
                                                     "-c", "echo $OMP_NUM_THREADS"},
                                            .env = {{"OMP_NUM_THREADS", "77"}}});
    CHECK(outcome.out == "77\n");
    const auto planned = dry_run(sandbox, {"--numa-binding", "node", "true"}, {{"OMP_NUM_THREADS", "77"}});
    CHECK_THAT(planned.out, Catch::EndsWith(" 77\n"));
}

TEST_CASE("a dry run shows the placement on a machine that is not here", "[e2e]") {
    const e2e::Sandbox sandbox("dry-run");
    const std::map<std::string, std::string> machine{{"HWLOC_SYNTHETIC", "package:2 numa:2 l3:2 core:4 pu:2"}};
    const auto socket = dry_run(sandbox, {"--numa-binding", "socket", "--nproc-per-node", "4", "true"}, machine);
    INFO(socket.err);
    CHECK(socket.status.success());
    CHECK_THAT(socket.out, Contains("\nRANK  LOCAL RANK  HOST") && Contains("0-31   0-1        16\n") &&
                               Contains("32-63  2-3        16\n"));
    const auto emulated = dry_run(
        sandbox, {"--numa-binding", "exclusive", "--nproc-per-node", "2", "--nnodes", "2", "--local-nodes", "true"},
        machine);
    CHECK_THAT(emulated.out, Contains("\n3     1           node1  -    48-63  3          16\n"));
}

TEST_CASE("a dry run starts and changes nothing", "[e2e]") {
    const e2e::Sandbox sandbox("nothing");
    const auto error_file = sandbox.path() / "error.json";
    e2e::write_file(error_file, "old");
    const auto outcome =
        dry_run(sandbox, {"--log-dir", "logs/deep", "touch", "ran"}, {{"TORCHELASTIC_ERROR_FILE", error_file}});
    INFO(outcome.err);
    CHECK(outcome.status.success());
    CHECK_THAT(outcome.out, Catch::StartsWith("program     touch ran\nexecutes    /"));
    CHECK_FALSE(std::filesystem::exists(sandbox.path() / "ran"));
    CHECK_FALSE(std::filesystem::exists(sandbox.path() / "logs"));
    CHECK(e2e::read_file(error_file) == "old");
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a dry run refuses what a start would refuse", "[e2e]") {
    const e2e::Sandbox sandbox("dry-refused");
    e2e::write_file(sandbox.path() / "file", "");
    const auto [words, code, message] = GENERATE(table<Words, int, std::string>({
        {{"--nproc-per-node", "0", "true"}, exit_code::kUsage, "--nproc-per-node 0"},
        {{"no-such-program"}, exit_code::kProgramNotFound, "no program 'no-such-program'"},
        {{"--log-dir", "file/logs", "true"}, exit_code::kUsage, "cannot keep log files in file/logs"},
        {{"--rdzv-dir", "/", "--rdzv-id", "j", "--local-addr", "192.0.2.77", "true"},
         exit_code::kUsage,
         "--local-addr"},
    }));
    CAPTURE(words);
    const auto outcome = dry_run(sandbox, words);
    CHECK(outcome.status.exit_code() == code);
    CHECK_THAT(outcome.err, Contains(message));
    CHECK(outcome.out == "");
}

TEST_CASE("nodes of one job have as many workers as each of them is started with", "[e2e]") {
    const e2e::Sandbox sandbox("sizes");
    const std::string endpoint = fmt::format("127.0.0.1:{}", e2e::free_port());
    const auto node = [&](const char* rank, const char* workers) {
        return e2e::Command{.argv = {(e2e::bin() / "ddprun").string(), "--nnodes", "2", "--node-rank", rank,
                                     "--rdzv-endpoint", endpoint, "--nproc-per-node", workers, "sh", "-c",
                                     "echo $RANK $LOCAL_RANK $LOCAL_WORLD_SIZE $WORLD_SIZE"}};
    };
    e2e::Process first(sandbox, node("0", "1"));
    e2e::Process second(sandbox, node("1", "3"));
    CHECK(first.wait(e2e::Seconds(60)).exit_code() == 0);
    CHECK(second.wait(e2e::Seconds(60)).exit_code() == 0);
    INFO(first.err() << second.err());
    CHECK(first.out() == "0 0 1 4\n");
    CHECK(lines_of(second.out()) == std::set<std::string>{"1 0 3 4", "2 1 3 4", "3 2 3 4"});
    CHECK(sandbox.leftovers() == "");
}
