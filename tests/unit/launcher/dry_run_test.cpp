// The text of --dry-run.

#include "launcher/dry_run.hpp"

#include "tests/catch.hpp"

using namespace ddprun;
using namespace ddprun::launcher;

namespace {

/// A job whose text is to be shown, and all that DryRun refers to.
struct Job {
    Options options;
    std::vector<ResolvedProgram> programs{{{{"/usr/bin/train"}, {}}, 2}};
    Placement placement{Placement::Part::kAlone, {"127.0.0.1", 0}, "one node"};
    WorkerResources resources{{}, {{cpu_mask({0, 1, 2, 3}), {}, 2}}};
    std::optional<std::string> threads;

    explicit Job(std::vector<std::string> words) {
        words.push_back("train");
        options = parse_options(words, {}).value().options;
    }
    [[nodiscard]] std::string text() const {
        int slots = 0;
        for (const ResolvedProgram& program : programs) slots += program.slots;
        return dry_run_text({options, programs, placement, "n1", slots, resources, threads});
    }
    /// Returns the text from the table on.
    [[nodiscard]] std::string table() const {
        const std::string all = text();
        return all.substr(all.find("RANK"));
    }
};

/// Returns as many bindings, each to one CPU of one NUMA node for every two.
std::vector<agent::WorkerBinding> one_cpu_each(int workers) {
    std::vector<agent::WorkerBinding> bindings;
    for (int worker = 0; worker < workers; ++worker) bindings.push_back({cpu_mask({worker}), {worker / 2}, 1});
    return bindings;
}

}  // namespace

TEST_CASE("a dry run shows program, rendezvous, nodes and workers", "[launcher][unit]") {
    CHECK(Job({}).text() ==
          "program     train\n"
          "executes    /usr/bin/train\n"
          "rendezvous  a ddprund of this job, on a free port of 127.0.0.1 (one node)\n"
          "nodes       1 node of 2 workers\n"
          "binding     none: workers run on the CPUs that ddprun may use\n"
          "memory      as ddprun was started\n"
          "\n"
          "RANK  LOCAL RANK  HOST  GPU  CPUS  NUMA NODE  OMP_NUM_THREADS\n"
          "0-1   0-1         n1    -    0-3   -          2\n");
}

TEST_CASE("workers that are bound to the same CPUs share a line", "[launcher][unit]") {
    Job job({"--numa-binding", "node"});
    job.programs[0].slots = 4;
    job.resources.gpus = {"0", "1", "2", "5"};
    const agent::WorkerBinding low{cpu_mask({0, 1}), {0}, 1};
    const agent::WorkerBinding high{cpu_mask({2, 3}), {1}, 1};
    job.resources.bindings = {low, low, high, high};
    CHECK(job.table() ==
          "RANK  LOCAL RANK  HOST  GPU  CPUS  NUMA NODE  OMP_NUM_THREADS\n"
          "0-1   0-1         n1    0-1  0-1   0          1\n"
          "2-3   2-3         n1    2,5  2-3   1          1\n");
    CHECK_THAT(job.text(),
               Catch::Contains("\nbinding     node\nmemory      of the NUMA node of the CPU that first uses "));
    job.resources.gpus = {"3", "1", "0", "2"};  // rank 0 has GPU 3
    CHECK_THAT(job.table(), Catch::Contains("n1    3,1  0-1 ") && Catch::Contains("n1    0,2  2-3 "));
    job.resources.gpus = {"GPU-a", "GPU-b", "MIG-c", "3"};
    job.threads = "7";
    CHECK_THAT(job.table(), Catch::Contains("GPU-a,GPU-b  0-1   0          7\n") && Catch::Contains("MIG-c,3 "));
}

TEST_CASE("emulated nodes share a line if each has one, and keep theirs otherwise", "[launcher][unit]") {
    Job job({"--local-nodes", "--nnodes", "3"});
    job.placement = {Placement::Part::kEmulate, {"127.0.0.1", 0}, "--local-nodes"};
    CHECK(job.table() ==
          "RANK  LOCAL RANK  HOST         GPU  CPUS  NUMA NODE  OMP_NUM_THREADS\n"
          "0-5   0-1         node0-node2  -    0-3   -          2\n");
    CHECK_THAT(job.text(), Catch::Contains("nodes       3 nodes, emulated on this machine, of 2 workers each\n"));
    job = Job({"--local-nodes", "--nnodes", "2", "--numa-binding", "exclusive"});
    job.resources.bindings = one_cpu_each(4);
    CHECK(job.table() ==
          "RANK  LOCAL RANK  HOST   GPU  CPUS  NUMA NODE  OMP_NUM_THREADS\n"
          "0     0           node0  -    0     0          1\n"
          "1     1           node0  -    1     0          1\n"
          "2     0           node1  -    2     1          1\n"
          "3     1           node1  -    3     1          1\n");
    // The second node's only line must not be joined with the last of several of the first.
    job.resources.bindings = one_cpu_each(2);
    job.resources.bindings.resize(4, job.resources.bindings[1]);
    CHECK_THAT(job.table(), Catch::EndsWith("1     1           node0  -    1     0          1\n"
                                            "2-3   0-1         node1  -    1     0          1\n"));
}

TEST_CASE("ranks are shown as far as they are known", "[launcher][unit]") {
    Job job({"--nnodes", "4", "--rdzv-endpoint", "n1"});
    job.placement = {Placement::Part::kHost, {"10.0.0.1", 29400}, "n1 is this host"};
    CHECK_THAT(
        job.text(),
        Catch::Contains("rendezvous  ddprund at 10.0.0.1:29400, which starts here unless it runs already (n1 is "
                        "this host)\nnodes       4 nodes; 2 workers on this one\n") &&
            Catch::Contains("\n?     0-1 ") &&
            Catch::EndsWith("\n\nRanks are not known yet: the daemon numbers the nodes in the order in which they "
                            "join. --node-rank N asks for a number.\n"));
    job.options.node_rank = 3;
    job.options.nodes.min = 2;
    job.placement = {Placement::Part::kJoin, {"n0", 29400}, "n0 is another host"};
    CHECK_THAT(job.text(),
               Catch::Contains("rendezvous  ddprund at n0:29400 (n0 is another host)\nnodes       2 to 4 nodes;") &&
                   Catch::Contains("\n6-7   0-1 ") &&
                   Catch::EndsWith("\n\nThe ranks are these if each node before this one has 2 workers, too.\n"));
}

TEST_CASE("a meeting point and an interpreter are named", "[launcher][unit]") {
    Job etcd({"--nnodes", "2", "--rdzv-backend", "etcd", "--rdzv-endpoint", "e1,e2:2000", "--rdzv-id", "job"});
    etcd.placement = {Placement::Part::kMeet, {"", 0}, "etcd"};
    etcd.programs[0].command = {{"/usr/bin/python3", "-u", "train.py"},
                                {"/usr/bin/python3", "the first python3 on PATH"}};
    CHECK_THAT(etcd.text(), Catch::Contains("executes    /usr/bin/python3 (the first python3 on PATH)\n") &&
                                Catch::Contains("publishes its address in etcd at e1:2379 and e2:2000\n"));
    Job directory({"--nnodes", "2", "--rdzv-dir", "/shared", "--rdzv-id", "job"});
    directory.placement = {Placement::Part::kMeet, {"", 0}, "--rdzv-dir"};
    CHECK_THAT(directory.text(), Catch::Contains("publishes its address in /shared\n"));
}

TEST_CASE("a spare has no ranks yet", "[launcher][unit]") {
    Job job({"--nnodes", "2", "--rdzv-endpoint", "n1", "--spare"});
    job.placement = {Placement::Part::kJoin, {"n1", 29400}, "n1 is another host"};
    CHECK_THAT(job.text(), Catch::Contains("\n-     0-1 ") && Catch::Contains("\nThis node is a spare: its workers "));
}

TEST_CASE("a dry run for a described machine shows neither this host nor its GPUs", "[launcher][unit]") {
    Job job({"--numa-binding", "node"});
    const agent::WorkerBinding bound{cpu_mask({0, 1}), {0}, 1};
    job.resources = {{}, {bound, bound}, false, "CPUs are those of another machine."};
    CHECK(job.table() ==
          "RANK  LOCAL RANK  HOST  GPU  CPUS  NUMA NODE  OMP_NUM_THREADS\n"
          "0-1   0-1         -     -    0-1   0          1\n"
          "\nCPUs are those of another machine.\n");
}

TEST_CASE("several programs have lines of their own, and a column", "[launcher][unit]") {
    Job job({});
    job.options =
        parse_options({"--max-restarts", "2", "train", "--lr", "1", ":", "--nproc-per-node", "1", "serve"}, {})
            .value()
            .options;
    job.programs.push_back({{{"/usr/bin/serve"}, {}}, 1});
    CHECK(job.text() ==
          "program 1   train --lr 1\n"
          "executes    /usr/bin/train\n"
          "role        default, 2 workers, --max-restarts 2\n"
          "program 2   serve\n"
          "executes    /usr/bin/serve\n"
          "role        serve, 1 worker, --max-restarts 0\n"
          "rendezvous  a ddprund of this job, on a free port of 127.0.0.1 (one node)\n"
          "nodes       1 node of 3 workers\n"
          "binding     none: workers run on the CPUs that ddprun may use\n"
          "memory      as ddprun was started\n"
          "\n"
          "RANK  LOCAL RANK  HOST  GPU  CPUS  NUMA NODE  OMP_NUM_THREADS  PROGRAM\n"
          "0-1   0-1         n1    -    0-3   -          2                1\n"
          "2     2           n1    -    0-3   -          2                2\n");
}
