// The floor of an all-reduce inside a node: as many threads as ranks, each of which reads its slice of all buffers,
// adds them up, and writes the sum to all. Nobody waits for anybody while the clock runs. Each thread stays on a core
// of its own, as ranks would: on one and the same, as who leaves a barrier often is, no line has to cross.
//
//     bench_floor RANKS CELL…            of the cells, those that are all_reduce
#include <sys/mman.h>

#include <atomic>
#include <barrier>
#include <new>
#include <thread>

#include "tests/bench/collectives/peer.hpp"
#include "tests/bench/collectives/slice_sum.hpp"

namespace {

struct Shared {
    explicit Shared(int size)
        : ranks(size), line(size), values(static_cast<std::size_t>(size)), buffers(values.size()) {}
    const int ranks;
    std::barrier<> line;
    std::vector<double> values;   ///< by rank
    std::vector<float*> buffers;  ///< by rank: the last one that it has allocated
};

class FloorPeer final : public ddprun::bench::Peer {
public:
    FloorPeer(Shared& shared, int rank) : shared_(shared), rank_(static_cast<std::size_t>(rank)) {}
    int rank() const override { return static_cast<int>(rank_); }
    void barrier() override { shared_.line.arrive_and_wait(); }
    double largest(double value) override {
        shared_.values[rank_] = value;
        barrier();
        const double most = *std::max_element(shared_.values.begin(), shared_.values.end());
        barrier();
        return most;
    }
    float* allocate(std::size_t count) override {
        constexpr std::size_t kHugePage = 2u << 20;
        const std::size_t bytes = (count * sizeof(float) + kHugePage - 1) / kHugePage * kHugePage;
        void* const memory = std::aligned_alloc(kHugePage, bytes);
        if (memory == nullptr) throw std::bad_alloc();
        ::madvise(memory, bytes, MADV_HUGEPAGE);
        shared_.buffers[rank_] = static_cast<float*>(memory);
        barrier();
        return shared_.buffers[rank_];
    }
    void all_reduce(float*, std::size_t count) override { ddprun::bench::add_up_slice(shared_.buffers, rank_, count); }
    void broadcast(float*, std::size_t) override {}

private:
    Shared& shared_;
    const std::size_t rank_;
};

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) return EXIT_FAILURE;
    Shared shared(std::stoi(argv[1]));
    std::vector<char*> cells;
    for (int i = 2; i < argc; ++i) {
        if (std::string(argv[i]).starts_with("all_reduce:")) cells.push_back(argv[i]);
    }
    std::vector<std::thread> threads;
    for (int rank = 0; rank < shared.ranks; ++rank) {
        threads.emplace_back([&shared, &cells, rank] {
            ddprun::bench::stay_on_core_of(rank);
            FloorPeer peer(shared, rank);
            ddprun::bench::run_cells(peer, static_cast<int>(cells.size()), cells.data(), 0);
        });
    }
    for (std::thread& thread : threads) thread.join();
}
