// The floor of an all-reduce inside a node: as many threads as ranks, each of which reads its slice of all buffers,
// adds them up, and writes the sum to all. Nobody waits for anybody while the clock runs. Each thread stays on a core
// of its own, as ranks would: on one and the same, as who leaves a barrier often is, no line has to cross.
//
//     bench_floor RANKS CELL…            of the cells, those that are all_reduce
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include <atomic>
#include <barrier>
#include <new>
#include <thread>

#include "tests/bench/collectives/peer.hpp"

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
    void all_reduce(float*, std::size_t count) override {
        const std::size_t each = (count / static_cast<std::size_t>(shared_.ranks)) & ~std::size_t{31};
        const std::size_t begin = rank_ * each;
        const std::size_t end = rank_ + 1 == static_cast<std::size_t>(shared_.ranks) ? count : begin + each;
        if (shared_.ranks == 2) return add_two(shared_.buffers[0], shared_.buffers[1], begin, end);
        constexpr std::size_t kBlock = 512;  // sums stay in the first-level cache
        float sums[kBlock];
        for (std::size_t at = begin; at < end; at += kBlock) {
            const std::size_t size = std::min(kBlock, end - at);
            std::copy_n(shared_.buffers[0] + at, size, sums);
            for (std::size_t rank = 1; rank < shared_.buffers.size(); ++rank) {
                const float* const more = shared_.buffers[rank] + at;
                for (std::size_t i = 0; i < size; ++i) sums[i] += more[i];
            }
            for (float* const buffer : shared_.buffers) std::copy_n(sums, size, buffer + at);
        }
    }
    void broadcast(float*, std::size_t) override {}

private:
    static void add_two(float* __restrict a, float* __restrict b, std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) {
            const float sum = a[i] + b[i];
            a[i] = sum;
            b[i] = sum;
        }
    }

    Shared& shared_;
    const std::size_t rank_;
};

/// The calling thread, to one of the cores that it may run on.
void stay_on_core_of(int rank) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) == 0) return;
    int left = rank % CPU_COUNT(&allowed);
    int core = 0;
    while (!CPU_ISSET(core, &allowed) || left-- > 0) ++core;
    CPU_ZERO(&allowed);
    CPU_SET(core, &allowed);
    ::pthread_setaffinity_np(::pthread_self(), sizeof allowed, &allowed);
}

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
            stay_on_core_of(rank);
            FloorPeer peer(shared, rank);
            ddprun::bench::run_cells(peer, static_cast<int>(cells.size()), cells.data(), 0);
        });
    }
    for (std::thread& thread : threads) thread.join();
}
