// One ddprun line in the environments of twelve starters, on two virtual hosts: one world of all nodes, or a refusal
// that names what is missing; never a smaller world. mpirun and mpiexec are real where they are installed, as is SLURM.
// The tests are skipped where the tools for virtual hosts are absent.

#include <sys/stat.h>

#include <array>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "tests/catch.hpp"
#include "tests/e2e/hosts.hpp"
#include "tests/e2e/slurm.hpp"

namespace {

using Catch::Contains;
using e2e::Seconds;
using Words = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;
using Lines = std::multiset<std::string>;

std::string program() { return (e2e::bin() / "ddprun").string(); }

Words joined(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

/// A line without an option whose workers print the world size and their host.
Words show_world(const Words& options = {}) {
    return joined(joined({program()}, options), {"sh", "-c", "echo world $WORLD_SIZE on $(hostname)"});
}

const Lines kWorldOfBoth{"world 2 on n1", "world 2 on n2"};

Lines lines_of(const std::string& text) {
    Lines lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.insert(line);
    return lines;
}

Words with_variables(const Variables& variables, const Words& line) {
    Words words{"env"};
    for (const auto& [name, value] : variables) words.push_back(name + "=" + value);
    return joined(std::move(words), line);
}

/// Starts one ddprun on each host with the variables of its node, and expects one world of both.
void check_world(const e2e::Sandbox& sandbox, const e2e::Hosts& hosts, const std::array<Variables, 2>& nodes) {
    e2e::Process first(sandbox, hosts.on("n1", with_variables(nodes[0], show_world())));
    e2e::Process second(sandbox, hosts.on("n2", with_variables(nodes[1], show_world())));
    const auto first_status = first.wait(Seconds(60));
    const auto second_status = second.wait(Seconds(60));
    CAPTURE(first.err(), second.err());
    CHECK(first_status.exit_code() == 0);
    CHECK(second_status.exit_code() == 0);
    CHECK(lines_of(first.out() + second.out()) == kWorldOfBoth);
}

void check_world(const e2e::Outcome& outcome) {
    CAPTURE(outcome.err);
    CHECK(outcome.status.exit_code() == 0);
    CHECK(lines_of(outcome.out) == kWorldOfBoth);
}

/// Expects a refusal. Returns it.
std::string refused(const e2e::Outcome& outcome) {
    CAPTURE(outcome.out, outcome.err);
    CHECK(outcome.status.exit_code() == 2);
    CHECK(outcome.out == "");
    return outcome.err;
}

/// A program like ssh for processes inside the virtual hosts.
class RemoteShell {
public:
    explicit RemoteShell(const e2e::Sandbox& sandbox)
        : path_(sandbox.path() / "ssh"),
          server_(sandbox, {.argv = {"python3", kScript, "serve", socket(), e2e::Hosts::tool()}}) {
        e2e::write_file(path_, "#!/bin/sh\nexec python3 " + std::string(kScript) + " " + socket() + " \"$@\"\n");
        REQUIRE(::chmod(path_.c_str(), 0755) == 0);
        REQUIRE(e2e::eventually(Seconds(30), [this] { return server_.out() == "ready\n"; }));
    }
    [[nodiscard]] std::string program() const { return path_.string(); }

private:
    static constexpr const char* kScript = DDPRUN_TEST_SOURCE "/tests/e2e/remote_shell.py";
    [[nodiscard]] std::string socket() const { return path_.string() + ".socket"; }

    std::filesystem::path path_;
    e2e::Process server_;
};

bool is_installed(const e2e::Sandbox& sandbox, const std::string& name) {
    if (e2e::run(sandbox, {.argv = {"sh", "-c", "command -v " + name}}).status.success()) return true;
    WARN("SKIPPED: " << name << " is not installed");
    return false;
}

Variables flux_task(int rank, int tasks) {
    return {
        {"FLUX_JOB_ID", "ƒDCB6RV"}, {"FLUX_JOB_ID_PATH", "/ƒDCB6RV"},         {"FLUX_JOB_SIZE", std::to_string(tasks)},
        {"FLUX_JOB_NNODES", "2"},   {"FLUX_TASK_RANK", std::to_string(rank)}, {"PMI_SIZE", std::to_string(tasks)}};
}

}  // namespace

TEST_CASE("SLURM: with scontrol, without it, and with srun --mpi=pmi2", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("starters-slurm");
    const e2e::Slurm slurm(sandbox, 2);
    check_world(e2e::run(sandbox, slurm.login(joined({"srun", "-N2"}, show_world())), Seconds(60)));
    check_world(e2e::run(sandbox, slurm.login(joined({"srun", "-N2", "--mpi=pmi2"}, show_world())), Seconds(60)));
    const auto path = sandbox.path() / "bin";  // without scontrol
    std::filesystem::create_directory(path);
    for (const char* const name : {"sh", "hostname"})
        std::filesystem::create_symlink(std::string("/bin/") + name, path / name);
    const Words bare = joined({"srun", "-N2", "/usr/bin/env", "PATH=" + path.string()}, show_world());
    check_world(e2e::run(sandbox, slurm.login(bare), Seconds(60)));
}

TEST_CASE("Open MPI: one ddprun per node is one world, several per node are refused", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("starters-openmpi");
    if (!is_installed(sandbox, "mpirun.openmpi")) return;
    {
        const e2e::Hosts hosts(sandbox, 2);
        const RemoteShell ssh(sandbox);
        const auto mpirun = [&](const Words& options, const std::string& list) {
            const Words line{"mpirun.openmpi", "--allow-run-as-root", "--mca",  "plm_rsh_agent",
                             ssh.program(),    "--oversubscribe",     "--host", list};
            return e2e::run(sandbox, hosts.on("n1", joined(joined(line, options), show_world())), Seconds(60));
        };
        check_world(mpirun({"-np", "2", "--map-by", "ppr:1:node"}, "n1,n2"));
        const auto twice = mpirun({"-np", "4"}, "n1:2,n2:2");
        CAPTURE(twice.err);
        CHECK(twice.status.exit_code() == 2);
        CHECK(twice.out == "");
        CHECK_THAT(twice.err, Contains("mpirun has started 2 tasks on a node") && Contains("mpirun -np 2 --map-by"));
        CHECK(mpirun({"-np", "2"}, "n1:2").out == "");
        CHECK(mpirun({"-np", "1"}, "n1").out == "world 1 on n1\n");
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("MPICH: one ddprun per node is one world, several per node are refused", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("starters-mpich");
    if (!is_installed(sandbox, "mpiexec.hydra")) return;
    {
        const e2e::Hosts hosts(sandbox, 2);
        const RemoteShell ssh(sandbox);
        const auto mpiexec = [&](const Words& options) {
            const Words line{"mpiexec.hydra", "-launcher", "ssh", "-launcher-exec", ssh.program(), "-hosts", "n1,n2"};
            return e2e::run(sandbox, hosts.on("n1", joined(joined(line, options), show_world())), Seconds(60));
        };
        check_world(mpiexec({"-n", "2", "-ppn", "1"}));
        const auto twice = mpiexec({"-n", "4", "-ppn", "2"});
        CAPTURE(twice.err);
        CHECK_FALSE(twice.status.success());
        CHECK(twice.out == "");
        CHECK_THAT(twice.err,
                   Contains("mpiexec has started 2 tasks on a node") && Contains("mpiexec -n 2 -ppn 1 ddprun"));
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("Flux, PBS, Kubernetes, JobSet and PET variables, and none", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("starters");
    {
        const e2e::Hosts hosts(sandbox, 2);
        const auto on_first = [&](const Variables& variables, const Words& options = {}) {
            return e2e::run(sandbox, hosts.on("n1", with_variables(variables, show_world(options))), Seconds(60));
        };
        SECTION("Flux") {
            check_world(sandbox, hosts, {flux_task(0, 2), flux_task(1, 2)});
            CHECK_THAT(refused(on_first(flux_task(0, 4))), Contains("flux run --nodes=2 --ntasks=2"));
            CHECK_THAT(refused(on_first({{"FLUX_URI", "local:///run/flux/local"}})), Contains("FLUX_JOB_ID is not"));
        }
        SECTION("PBS") {
            e2e::write_file(sandbox.path() / "nodes", "n1\nn1\nn2\nn2\n");
            const Variables script{{"PBS_JOBID", "71.server"}, {"PBS_NODEFILE", (sandbox.path() / "nodes").string()}};
            CHECK_THAT(refused(on_first(script)), Contains("PBS job 71.server has 2 hosts"));
            CHECK_THAT(refused(on_first({{"PBS_JOBID", "71.server"}, {"PBS_NODEFILE", "/nowhere"}})),
                       Contains("PBS_NODEFILE=/nowhere"));
        }
        SECTION("LSF") {
            CHECK_THAT(refused(on_first({{"LSB_JOBID", "71"}, {"LSB_MCPU_HOSTS", "n1 2 n2 2"}})),
                       Contains("LSF job 71 has 2 hosts"));
        }
        SECTION("an indexed Job of Kubernetes") {
            for (const char* const host :
                 {"n1", "n2"}) {  // as kubelet and the name server of the cluster name the pods
                const std::string names =
                    "printf '10.77.0.1 %s %s\\n10.77.0.2 %s %s\\n' train-0.svc train-0 train-1.svc train-1 >> "
                    "/etc/hosts";
                REQUIRE(e2e::run(sandbox, hosts.on(host, {"sh", "-c", names})).status.success());
            }
            const auto pod = [](int index) {
                return Variables{{"JOB_COMPLETION_INDEX", std::to_string(index)},
                                 {"HOSTNAME", "train-" + std::to_string(index)}};
            };
            CHECK_THAT(refused(on_first(pod(0))), Contains("Pass --nnodes N"));
            Variables first = pod(0);
            Variables second = pod(1);
            for (Variables* const one : {&first, &second}) (*one)["PET_NNODES"] = "2";
            check_world(sandbox, hosts, {first, second});
            first["HOSTNAME"] = "n-0";  // without a domain
            CHECK_THAT(refused(on_first(first)), Contains("the pod n-0 has no domain name"));
        }
        SECTION("a JobSet") {
            const Variables pod{{"JOB_COMPLETION_INDEX", "0"}, {"HOSTNAME", "set-workers-0-0"}};
            CHECK_THAT(refused(on_first(pod)), Contains("Pass --nnodes N"));
        }
        SECTION("PET variables, as Kubeflow sets them") {
            const auto pod = [](const char* rank) {
                return Variables{{"PET_NNODES", "2"},
                                 {"PET_NODE_RANK", rank},
                                 {"PET_MASTER_ADDR", "n1"},
                                 {"PET_MASTER_PORT", "29500"},
                                 {"JOB_COMPLETION_INDEX", rank}};
            };
            check_world(sandbox, hosts, {pod("0"), pod("1")});
        }
        SECTION("none") { CHECK(on_first({}).out == "world 1 on n1\n"); }
    }
    CHECK(sandbox.leftovers() == "");
}
