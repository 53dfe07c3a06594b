// Messages and groups, as programs for MPI use them.
//
//     ddprun --nproc-per-node 4 mpi_style
//
// 1. A ring: each rank sends to its right neighbour while it receives from the left one (MPI_Sendrecv).
// 2. A group per parity of the ranks (MPI_Comm_split).
// 3. A sort of numbers that are spread over the ranks: each rank gets those of its range (MPI_Alltoallv).

#include <ddp/ddp.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <vector>

namespace {

constexpr int kNumbers = 25, kRange = 1000;

/// Adds up the ranks' values, which go round once.
int sum_around_ring(ddp::ProcessGroup& world, int value) {
    const int left = (world.rank() + world.size() - 1) % world.size(), right = (world.rank() + 1) % world.size();
    int sum = value;
    for (int i = 1; i < world.size(); ++i) {
        int received = 0;
        ddp::TransferBatch batch = world.batch();  // so that no rank waits for its send before it receives
        batch.send(value, right).recv(received, left);
        batch.start().wait();
        value = received;
        sum += value;
    }
    return sum;
}

/// Returns the numbers of all ranks that lie in this rank's part of the range, sorted.
std::vector<int> sort(ddp::ProcessGroup& world, std::vector<int> numbers) {
    std::ranges::sort(numbers);  // the part of the first rank comes first
    std::vector<std::size_t> send_counts(world.size()), receive_counts(world.size());
    for (const int number : numbers) ++send_counts[number * world.size() / kRange];
    world.all_to_all(send_counts, receive_counts).wait();

    std::vector<int> part(std::accumulate(receive_counts.begin(), receive_counts.end(), std::size_t{0}));
    world.all_to_all_v(numbers, send_counts, part, receive_counts).wait();
    std::ranges::sort(part);
    return part;
}

}  // namespace

int main() try {
    ddp::Context context = ddp::init_from_env({.backend = ddp::Backend::Native});
    ddp::ProcessGroup& world = context.world();
    const int rank = world.rank();

    const int ring = sum_around_ring(world, rank + 1);

    const std::unique_ptr<ddp::ProcessGroup> parity = world.split(rank % 2, rank, "parity");
    int product = rank + 1;
    parity->all_reduce(product, ddp::ReduceOp::Product).wait();

    std::vector<int> numbers;
    for (int i = 0; i < kNumbers; ++i) numbers.push_back((rank * kNumbers + i) * 619 % kRange);
    const std::vector<int> part = sort(world, numbers);

    std::printf("rank %d: ring %d, rank %d of %d of its parity with product %d, sorted", rank, ring, parity->rank(),
                parity->size(), product);
    for (const int number : part) std::printf(" %d", number);
    std::printf("\n");
} catch (const ddp::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
