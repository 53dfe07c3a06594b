#include "tests/e2e/ddp_script.hpp"

#include <set>
#include <sstream>

#include "tests/catch.hpp"

namespace e2e {

const char* const kDdpScript = R"(
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo", init_method="env://")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1 + rank)  # every rank starts elsewhere: DDP must bring them together
model = DistributedDataParallel(torch.nn.Linear(20, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    optimizer.zero_grad()
    loss = model(torch.randn(16, 20)).pow(2).mean()
    loss.backward()
    optimizer.step()
total = torch.tensor([float(rank)])
dist.all_reduce(total)
assert total.item() == world * (world - 1) / 2, total
dist.barrier()
checksum = sum(p.double().sum().item() for p in model.parameters())
print(f"rank {rank} of {world}: {checksum:.12f}", flush=True)
dist.destroy_process_group()
)";

bool torch_is_installed(const Sandbox& sandbox) {
    return run(sandbox, {.argv = {"/usr/bin/python3", "-c", "import torch.distributed"}}).status.success();
}

void check_ddp_output(const std::string& out, int world) {
    std::set<std::string> ranks;
    std::set<std::string> checksums;
    std::istringstream lines(out);
    for (std::string line; std::getline(lines, line);) {
        const auto colon = line.find(": ");
        if (!line.starts_with("rank ") || colon == std::string::npos) continue;
        ranks.insert(line.substr(0, colon));
        checksums.insert(line.substr(colon));
    }
    CHECK(ranks.size() == static_cast<std::size_t>(world));
    CHECK(checksums.size() == 1);
}

}  // namespace e2e
