// The smallest program of several ranks: each has a vector, and all get the sum of the vectors.
//
//     ddprun --nproc-per-node 4 hello_all_reduce
//
// ddprun starts one process per rank. They find each other by variables of the environment that it sets, so the same
// program runs on one machine and on many. Started by hand it is alone.

#include <ddp/ddp.hpp>

#include <cstdio>
#include <vector>

int main() try {
    ddp::Context context = ddp::init_from_env({.backend = ddp::Backend::Native});  // the vectors are in host memory

    std::vector<int> values{1, context.rank(), context.rank() * context.rank()};
    ddp::Work work = context.world().all_reduce(values, ddp::ReduceOp::Sum);
    work.wait();  // until then the vector belongs to the library

    std::printf("rank %d: %d ranks, sum of ranks %d, of their squares %d\n", context.rank(), values[0], values[1],
                values[2]);
} catch (const ddp::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());  // names the ranks, their hosts and the operation
    return 1;
}
