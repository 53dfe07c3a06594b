#include "agent/workers/environment.hpp"

#include "agent/config/worker_binding.hpp"

#include "tests/catch.hpp"

using namespace ddprun;
using namespace ddprun::agent;

namespace {

protocol::Assignment second_node() {
    protocol::Assignment a;
    a.generation = Generation{7};
    a.node_rank = NodeRank{1};
    a.node_count = 2;
    a.rank_base = 4;
    a.world_size = 6;
    a.master_addr = "10.0.0.7";
    a.master_port = 4567;
    a.restart_count = 2;
    return a;
}

WorkerSlot place() { return {LocalRank{1}, 2, 4, "n12", "mnist", "trainer", 2, 3, 3, "/proc/1/fd/3"}; }

}  // namespace

TEST_CASE("a worker sees every variable that torchrun sets, and ours", "[agent]") {
    const Environment env = worker_environment({}, second_node(), place());
    const Environment expected = {
        {"RANK", "5"},
        {"LOCAL_RANK", "1"},
        {"WORLD_SIZE", "6"},
        {"LOCAL_WORLD_SIZE", "2"},
        {"GROUP_RANK", "1"},
        {"GROUP_WORLD_SIZE", "2"},
        {"ROLE_NAME", "trainer"},
        {"ROLE_RANK", "2"},
        {"ROLE_WORLD_SIZE", "3"},
        {"MASTER_ADDR", "10.0.0.7"},
        {"MASTER_PORT", "4567"},
        {"TORCHELASTIC_RESTART_COUNT", "2"},
        {"TORCHELASTIC_MAX_RESTARTS", "3"},
        {"TORCHELASTIC_RUN_ID", "mnist"},
        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
        {"TORCHELASTIC_ERROR_FILE", "/proc/1/fd/3"},
        {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
        {"OMP_NUM_THREADS", "4"},
        {"DDPRUN_GENERATION", "7"},
        {"DDPRUN_NODE_NAME", "n12"},
        {"DDPRUN_RUN_ID", "mnist"},
    };
    CHECK(env == expected);
}

TEST_CASE("a worker sees the address and port that the user named for the store", "[agent]") {
    WorkerSlot named = place();
    named.master = Endpoint{"localhost", 29555};
    const Environment env = worker_environment({}, second_node(), named);
    CHECK(env.at("MASTER_ADDR") == "localhost");
    CHECK(env.at("MASTER_PORT") == "29555");
}

TEST_CASE("a worker sees the local address of its node, and never that of an outer job", "[agent]") {
    WorkerSlot addressed = place();
    addressed.local_address = "10.1.0.7";
    CHECK(worker_environment({}, second_node(), addressed).at("DDPRUN_LOCAL_ADDR") == "10.1.0.7");
    CHECK_FALSE(
        worker_environment({{"DDPRUN_LOCAL_ADDR", "10.9.9.9"}}, second_node(), place()).contains("DDPRUN_LOCAL_ADDR"));
}

TEST_CASE("NCCL and gloo get the interface by which the nodes reach each other, unless the user has chosen one",
          "[agent]") {
    WorkerSlot connected = place();
    connected.interface = "eth1";
    const auto seen = [&](Environment base) { return worker_environment(std::move(base), second_node(), connected); };
    CHECK(seen({}).at("NCCL_SOCKET_IFNAME") == "=eth1");
    CHECK(seen({}).at("GLOO_SOCKET_IFNAME") == "eth1");
    const Environment own = seen({{"NCCL_SOCKET_IFNAME", "ib"}, {"GLOO_SOCKET_IFNAME", "bond0"}});
    CHECK(own.at("NCCL_SOCKET_IFNAME") == "ib");
    CHECK(own.at("GLOO_SOCKET_IFNAME") == "bond0");
    const Environment ours = seen({{"DDPRUN_SOCKET_IFNAME", "ib,eth"}});
    CHECK(ours.at("NCCL_SOCKET_IFNAME") == "ib,eth");
    CHECK_FALSE(ours.contains("GLOO_SOCKET_IFNAME"));  // which would take it for whole names
    connected.nccl_has_interface = true;
    CHECK_FALSE(seen({}).contains("NCCL_SOCKET_IFNAME"));
    CHECK(seen({}).at("GLOO_SOCKET_IFNAME") == "eth1");
}

TEST_CASE("a worker sees the scheduler's step of its node, and never that of an outer job", "[agent]") {
    const Environment stale{{"DDPRUN_SCHEDULER_STEP", "70.3"}};
    CHECK_FALSE(worker_environment(stale, second_node(), place()).contains("DDPRUN_SCHEDULER_STEP"));
    Environment script = stale;
    script["SLURM_JOB_ID"] = "71";
    CHECK(worker_environment(script, second_node(), place()).at("DDPRUN_SCHEDULER_STEP") == "71.");
    script["SLURM_STEP_ID"] = "0";
    CHECK(worker_environment(script, second_node(), place()).at("DDPRUN_SCHEDULER_STEP") == "71.0");
}

TEST_CASE("the user's variables are kept, stale ones of an outer job are replaced", "[agent]") {
    const Environment env = worker_environment(
        {{"PATH", "/bin"}, {"RANK", "99"}, {"OMP_NUM_THREADS", "1"}, {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"}},
        second_node(), place());
    CHECK(env.at("PATH") == "/bin");
    CHECK(env.at("RANK") == "5");
    CHECK(env.at("OMP_NUM_THREADS") == "1");
    CHECK(env.at("TORCH_NCCL_ASYNC_ERROR_HANDLING") == "0");
}

TEST_CASE("a worker with a virtual local rank sees one GPU, that of its real local rank", "[agent]") {
    WorkerSlot virtual_place = place();
    virtual_place.device_variables = {"CUDA_VISIBLE_DEVICES"};
    const auto seen = [&](Environment base) {
        return worker_environment(std::move(base), second_node(), virtual_place);
    };
    const Environment all = seen({});
    CHECK(all.at("LOCAL_RANK") == "0");
    CHECK(all.at("LOCAL_WORLD_SIZE") == "2");
    CHECK(all.at("RANK") == "5");
    CHECK(all.at("CUDA_VISIBLE_DEVICES") == "1");
    CHECK(seen({{"CUDA_VISIBLE_DEVICES", "4,7,2"}}).at("CUDA_VISIBLE_DEVICES") == "7");
    CHECK(seen({{"CUDA_VISIBLE_DEVICES", ""}}).at("CUDA_VISIBLE_DEVICES") == "");
    virtual_place.device_variables = {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"};
    const Environment several = seen({{"HIP_VISIBLE_DEVICES", "5,3"}, {"ZE_AFFINITY_MASK", "0.0,0.1"}});
    CHECK(several.at("CUDA_VISIBLE_DEVICES") == "1");
    CHECK(several.at("HIP_VISIBLE_DEVICES") == "3");
    CHECK(several.at("ZE_AFFINITY_MASK") == "0.1");
    CHECK(seen({{"CUDA_VISIBLE_DEVICES", "4,7"}}).at("HIP_VISIBLE_DEVICES") == "7");
    CHECK(visible_device("GPU-1", LocalRank{0}) == "GPU-1");
    CHECK_FALSE(visible_device("GPU-1", LocalRank{1}));
    CHECK_FALSE(worker_environment({}, second_node(), place()).contains("CUDA_VISIBLE_DEVICES"));
}

TEST_CASE("workers divide the CPUs as OpenMP threads, with at least one each", "[agent]") {
    CHECK(threads_per_worker(8, 2) == 4);
    CHECK(threads_per_worker(8, 3) == 2);
    CHECK(threads_per_worker(8, 16) == 1);
}

TEST_CASE("the local rank is put into arguments, and every other dollar stays", "[agent]") {
    const auto [argument, expected] = GENERATE(table<std::string, std::string>({
        {"${local_rank}", "3"},
        {"--out=log.$local_rank.txt", "--out=log.3.txt"},
        {"a${local_rank}b$local_rank", "a3b3"},
        {"$local_ranks", "$local_ranks"},
        {"$local_rank_2", "$local_rank_2"},
        {"$HOME$$", "$HOME$$"},
        {"${local_rank", "${local_rank"},
        {"$${local_rank}", "$3"},
        {"", ""},
        {"$", "$"},
    }));
    CAPTURE(argument);
    CHECK(worker_command({"prog", argument}, LocalRank{3}) == std::vector<std::string>{"prog", expected});
    CHECK(worker_command({argument}, LocalRank{3}) == std::vector<std::string>{argument});  // the program's name stays
}

TEST_CASE(
    "environments survive the way to a map and back: the first of two equal names counts, malformed entries are "
    "dropped",
    "[agent]") {
    const char* const entries[] = {"A=1", "EMPTY=", "B=x=y", "nonsense", "A=2", nullptr};
    const Environment env = parse_environment(entries);
    CHECK(env == Environment{{"A", "1"}, {"B", "x=y"}, {"EMPTY", ""}});
    CHECK(to_strings(env) == std::vector<std::string>{"A=1", "B=x=y", "EMPTY="});
}
