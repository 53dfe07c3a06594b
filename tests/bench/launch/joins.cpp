// The coordinator's own time for the joins of a job's nodes, all of which it needs: no sockets, no encoding.
// usage: bench_launch_joins
// Prints for each number of nodes the CPU time of their joins, and of the tick that follows.

#include <fmt/format.h>

#include <ctime>
#include <utility>

#include "rendezvous/coordinator/coordinator.hpp"

namespace {

using namespace ddprun;
using namespace ddprun::coordinator;

double cpu_seconds() {
    timespec time{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

Join greeting(int node, int nodes) {
    Join join;
    join.node = fmt::format("{:032x}", node * 2'654'435'761ull);  // in no order, as ids are drawn at random
    join.host = fmt::format("node{}.cluster.example.org", node);
    join.min_nodes = join.max_nodes = nodes;
    return join;
}

class Job {
public:
    void feed(Happening what) {
        Step next = step(std::move(state_), {now_, std::move(what)});
        state_ = std::move(next.next);
    }

private:
    State state_{Config{.run_id = "bench", .session = "session"}};
    TimePoint now_{std::chrono::seconds(100)};
};

}  // namespace

int main() {
    for (const int nodes : {1'000, 4'000, 16'000}) {
        Job job;
        const double start = cpu_seconds();
        for (int node = 0; node + 1 < nodes; ++node) {  // without the last one, whose join starts the workers
            const Join join = greeting(node, nodes);
            job.feed(NodeMessage{join.node, join});
        }
        const double joined = cpu_seconds();
        job.feed(Tick{});
        fmt::print("{:6} nodes: joins {:7.3f} s, tick {:7.4f} s\n", nodes, joined - start, cpu_seconds() - joined);
    }
}
