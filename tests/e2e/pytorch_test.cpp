// Unmodified PyTorch scripts under ddprun: training, and the ways in which scripts name the store.

#include <fmt/format.h>

#include <algorithm>

#include "tests/catch.hpp"
#include "tests/e2e/ddp_script.hpp"
#include "tests/e2e/process.hpp"

namespace {

/// Meets by init_method tcp:// with the address and port of its arguments, except that odd ranks use env:// if a third
/// argument is given. Fails once in the first attempt if the file "fail" is there.
const char* const kTcpScript = R"(
import os, sys
import torch
import torch.distributed as dist

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if rank % 2 and len(sys.argv) > 3:
    dist.init_process_group("gloo", init_method="env://")
else:
    dist.init_process_group("gloo", init_method=f"tcp://{sys.argv[1]}:{sys.argv[2]}", rank=rank, world_size=world)
total = torch.tensor([float(rank)])
dist.all_reduce(total)
assert total.item() == world * (world - 1) / 2, total
if os.path.exists("fail") and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    dist.barrier()
    sys.exit(3 if rank == 0 else 0)
print(f"met {rank} {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}", flush=True)
dist.barrier()
dist.destroy_process_group()
)";

/// Opens the store at the endpoint of its argument as a client, as scripts do with torchrun's --rdzv-endpoint. In each
/// attempt the store must be empty, and be the one of MASTER_ADDR and MASTER_PORT; the first attempt fails.
const char* const kClientScript = R"(
import os, sys
from datetime import timedelta
import torch.distributed as dist

host, port = sys.argv[1].rsplit(":", 1)
limit = timedelta(seconds=20)
named = dist.TCPStore(host, int(port), is_master=False, timeout=limit)
own = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=limit)
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
print(f"attempt {attempt} keys {named.num_keys()}", flush=True)
named.set("key", attempt)
assert own.get("key").decode() == attempt
sys.exit(3 if attempt == "0" else 0)
)";

std::string ddprun_program() { return (e2e::bin() / "ddprun").string(); }

bool skipped_without_torch(const e2e::Sandbox& sandbox) {
    if (e2e::torch_is_installed(sandbox)) return false;
    WARN("SKIPPED: python3-torch is not installed");
    return true;
}

std::ptrdiff_t lines(const std::string& text) { return std::ranges::count(text, '\n'); }

}  // namespace

TEST_CASE("an unmodified DistributedDataParallel script trains on two emulated nodes", "[e2e]") {
    const e2e::Sandbox sandbox("pytorch");
    if (skipped_without_torch(sandbox)) return;
    e2e::write_file(sandbox.path() / "script.py", e2e::kDdpScript);
    const auto outcome = e2e::run(
        sandbox, {.argv = {ddprun_program(), "--nnodes", "2", "--nproc_per_node", "2", "--local-nodes", "script.py"},
                  .env = {{"PYTHON_EXEC", "/usr/bin/python3"}},
                  .directory = sandbox.path()});
    CAPTURE(outcome.out, outcome.err);
    CHECK(outcome.status.exit_code() == 0);
    e2e::check_ddp_output(outcome.out, 4);
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("ranks meet by tcp:// at the port of --master-port or of a static endpoint, after a restart too", "[e2e]") {
    const e2e::Sandbox sandbox("pytorch-tcp");
    if (skipped_without_torch(sandbox)) return;
    e2e::write_file(sandbox.path() / "script.py", kTcpScript);
    const bool restart = GENERATE(false, true);
    const bool by_backend = GENERATE(false, true);
    CAPTURE(restart, by_backend);
    if (restart) e2e::write_file(sandbox.path() / "fail", "");
    const std::string port = std::to_string(e2e::free_port());
    std::vector<std::string> argv{ddprun_program(), "--nproc-per-node", "2", "--max-restarts", restart ? "1" : "0"};
    using Words = std::vector<std::string>;
    const Words endpoint = by_backend ? Words{"--rdzv-backend", "static", "--rdzv-endpoint", "localhost:" + port}
                                      : Words{"--master-addr", "localhost", "--master-port", port};
    argv.insert(argv.end(), endpoint.begin(), endpoint.end());
    argv.insert(argv.end(), {"script.py", "localhost", port});
    const auto outcome =
        e2e::run(sandbox, {.argv = argv, .env = {{"PYTHON_EXEC", "/usr/bin/python3"}}, .directory = sandbox.path()});
    CAPTURE(outcome.out, outcome.err);
    CHECK(outcome.status.exit_code() == 0);
    CHECK(lines(outcome.out) == 2);
    CHECK_THAT(outcome.out, Catch::Contains("met 0 localhost:" + port) && Catch::Contains("met 1 localhost:" + port));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("ranks of two nodes meet by tcp:// at the named port and by env:// at the generation's own", "[e2e]") {
    const e2e::Sandbox sandbox("pytorch-tcp-nodes");
    if (skipped_without_torch(sandbox)) return;
    e2e::write_file(sandbox.path() / "script.py", kTcpScript);
    const std::string port = std::to_string(e2e::free_port());
    const e2e::Command node{.argv = {ddprun_program(), "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint",
                                     "127.0.0.1:" + port, "script.py", "127.0.0.1", port, "env"},
                            .env = {{"PYTHON_EXEC", "/usr/bin/python3"}},
                            .directory = sandbox.path()};
    e2e::Process first(sandbox, node);
    e2e::Process second(sandbox, node);
    CHECK(first.wait(e2e::Seconds(90)).exit_code() == 0);
    CHECK(second.wait(e2e::Seconds(90)).exit_code() == 0);
    const std::string out = first.out() + second.out();
    CAPTURE(out, first.err(), second.err());
    CHECK(lines(out) == 2);
    CHECK_THAT(out, Catch::Contains("met 0 127.0.0.1:") && Catch::Contains("met 1 127.0.0.1:"));
    CHECK_THAT(out, !Catch::Contains(":" + port));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a TCPStore client of --rdzv-endpoint reaches the store of each attempt", "[e2e]") {
    const e2e::Sandbox sandbox("pytorch-client");
    if (skipped_without_torch(sandbox)) return;
    e2e::write_file(sandbox.path() / "script.py", kClientScript);
    const std::string endpoint = fmt::format("127.0.0.1:{}", e2e::free_port());
    const auto outcome = e2e::run(
        sandbox, {.argv = {ddprun_program(), "--max-restarts", "1", "--rdzv-endpoint", endpoint, "script.py", endpoint},
                  .env = {{"PYTHON_EXEC", "/usr/bin/python3"}},
                  .directory = sandbox.path()});
    CAPTURE(outcome.out, outcome.err);
    CHECK(outcome.status.exit_code() == 0);
    CHECK(outcome.out == "attempt 0 keys 0\nattempt 1 keys 0\n");
    CHECK(sandbox.leftovers() == "");
}
