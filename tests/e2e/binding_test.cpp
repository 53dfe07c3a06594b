// The CPUs and GPUs of workers, and --dry-run, with the real programs. Machines that are not here are described to
// hwloc by HWLOC_SYNTHETIC.

#include <fmt/format.h>

#include <map>
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

struct OnCpus {
    ddprun::CpuSet cpus;
    std::string threads;  ///< OMP_NUM_THREADS
    friend bool operator==(const OnCpus&, const OnCpus&) = default;
};

/// Returns the CPUs of each rank, from the output of kShow.
std::map<int, OnCpus> shown_in(const std::string& out) {
    std::map<int, OnCpus> ranks;
    for (const std::string& line : lines_of(out)) {
        std::istringstream fields(line);
        int rank = -1;
        std::string list;
        std::string threads;
        fields >> rank >> list >> threads;
        ranks[rank] = {ddprun::parse_number_list(list), threads};
    }
    return ranks;
}

/// Returns the CPUs of each rank, from the table of a dry run.
std::map<int, OnCpus> planned_in(const std::string& out) {
    std::map<int, OnCpus> ranks;
    std::istringstream table(out.substr(out.find("\nRANK") + 1));  // the program of kShow contains the word, too
    std::string line;
    for (std::getline(table, line); std::getline(table, line) && !line.empty();) {
        std::istringstream fields(line);
        std::string rank_list, local, host, gpu, list, node, threads;
        fields >> rank_list >> local >> host >> gpu >> list >> node >> threads;
        for (const int rank : ddprun::parse_number_list(rank_list))
            ranks[rank] = {ddprun::parse_number_list(list), threads};
    }
    return ranks;
}

/// Runs ddprun where it may use only `cpu`.
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

TEST_CASE("bound workers run on the CPUs that a dry run shows", "[e2e]") {
    const e2e::Sandbox sandbox("as-planned");
    const std::string mode = GENERATE("node", "socket", "core-complex", "exclusive");
    CAPTURE(mode);
    Words words{"--numa-binding", mode, "--nproc-per-node", "2", "sh", "-c", kShow};
    const auto planned = dry_run(sandbox, words);
    words.insert(words.begin(), (e2e::bin() / "ddprun").string());
    const auto outcome = e2e::run(sandbox, {.argv = words, .env = {{"CUDA_VISIBLE_DEVICES", ""}}});
    INFO(planned.err << outcome.err);
    CHECK(planned.status.exit_code() == outcome.status.exit_code());
    if (outcome.status.exit_code() == exit_code::kUsage) {  // one core
        CHECK_THAT(outcome.err, Contains("has 1 core for 2 workers"));
        return;
    }
    const auto shown = shown_in(outcome.out);
    REQUIRE(shown.size() == 2);
    CHECK(shown == planned_in(planned.out));
    if (mode == "exclusive") CHECK(ddprun::common_cpus(shown.at(0).cpus, shown.at(1).cpus).empty());
    CHECK(sandbox.leftovers() == "");
}

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
    const auto shown = shown_in(outcome.out);
    REQUIRE(shown.size() == 2);
    CHECK(ddprun::common_cpus(shown.at(0).cpus, shown.at(1).cpus).empty());
    for (const auto& [rank, own] : shown) {
        CHECK_FALSE(own.cpus.empty());
        CHECK(ddprun::common_cpus(own.cpus, allowed) == own.cpus);
        CHECK(own.threads == std::to_string(own.cpus.size()));
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a binding that is impossible is refused before anything starts", "[e2e]") {
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
    CHECK_THAT(elsewhere.err,
               Contains("--numa-binding: HWLOC_SYNTHETIC=numa:2 pu:2 describes another machine. Unset it"));
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
                               Contains("\n2-3   2-3         -     -    32-63  2-3        16\n") &&
                               Contains("HWLOC_SYNTHETIC=package:2 numa:2 l3:2 core:4 pu:2 describes"));
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
