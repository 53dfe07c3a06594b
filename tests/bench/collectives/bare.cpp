// The bare all-reduce and barrier inside a node: as many processes as ranks, each on a core of its own as far as there
// are, which do what no correct one can do without, and nothing else: no queue, no checks, no deadline, nothing that is
// written down. Small data goes beside the number with which a rank says that it has come; of large buffers each rank
// adds up its slice between two meetings.
//
//     bench_bare RANKS CELL…             of the cells, those that are all_reduce and barrier
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <new>
#include <span>
#include <system_error>

#include "tests/bench/collectives/peer.hpp"
#include "tests/bench/collectives/slice_sum.hpp"

namespace {

using namespace ddprun::bench;

/// On a pair of cache lines of its own: the prefetcher fetches pairs.
struct alignas(128) Place {
    static constexpr std::size_t kRoom = 14;  ///< floats in the line of the number
    std::atomic<std::uint64_t> number{0};
    std::array<float, kRoom> data{};
};

/// What the processes share of one rank.
struct Rank {
    /// For meetings with even and with odd numbers. A rank that has arrived at the next meeting has read this location.
    std::array<Place, 2> locations;
    double value = 0;
    std::byte* heap = nullptr;  ///< at the same address in all processes
};

constexpr std::size_t kHeapBytes = std::size_t{2} << 30;
constexpr std::size_t kHugePage = 2u << 20;
constexpr int kCollapse = 25;  ///< MADV_COLLAPSE (Linux 6.1), which older headers lack: huge pages, now

/// Memory that all processes see from the fork() on; zeros, and no page of it before it is touched.
std::byte* map_shared(std::size_t bytes) {
    void* const memory =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::system_error(errno, std::system_category(), "mmap");
    return static_cast<std::byte*>(memory);
}

class BarePeer final : public Peer {
public:
    BarePeer(std::span<Rank> ranks, int rank, bool crowded)
        : ranks_(ranks), own_(ranks[static_cast<std::size_t>(rank)]), rank_(rank), crowded_(crowded) {}

    int rank() const override { return rank_; }
    double largest(double value) override {
        own_.value = value;
        meet({});
        for (const Rank& one : ranks_) value = std::max(value, one.value);
        meet({});
        return value;
    }
    /// All ranks allocate the same, so that their buffers lie at the same place of each heap.
    float* allocate(std::size_t count) override {
        const std::size_t bytes = (count * sizeof(float) + kHugePage - 1) / kHugePage * kHugePage;
        if (used_ + bytes > kHeapBytes) throw std::bad_alloc();
        buffers_.clear();
        for (const Rank& one : ranks_) buffers_.push_back(reinterpret_cast<float*>(one.heap + used_));
        float* const mine = reinterpret_cast<float*>(own_.heap + used_);
        used_ += bytes;
        std::fill_n(mine, bytes / sizeof(float), 0.0F);
        ::madvise(mine, bytes, kCollapse);  // as the library does, where the kernel can
        meet({});
        return mine;
    }
    void barrier() override { meet({}); }
    void broadcast(float*, std::size_t) override {}
    void all_reduce(float* values, std::size_t count) override {
        if (count > Place::kRoom) {
            meet({});
            add_up_slice(buffers_, static_cast<std::size_t>(rank_), count);
            return meet({});
        }
        meet({values, count});
        for (std::size_t i = 0; i < count; ++i) {
            float sum = 0;
            for (const Rank& one : ranks_) sum += one.locations[number_ % 2].data[i];
            values[i] = sum;
        }
    }

private:
    void meet(std::span<const float> data) {
        ++number_;
        Place& own = own_.locations[number_ % 2];
        std::copy(data.begin(), data.end(), own.data.begin());
        own.number.store(number_, std::memory_order_release);
        for (const Rank& one : ranks_) {
            while (one.locations[number_ % 2].number.load(std::memory_order_acquire) != number_) {
                if (crowded_) ::sched_yield();
            }
        }
    }

    const std::span<Rank> ranks_;
    Rank& own_;
    const int rank_;
    const bool crowded_;  ///< ranks share cores
    std::uint64_t number_ = 0;
    std::size_t used_ = 0;
    std::vector<float*> buffers_;  ///< by rank: the last ones
};

int run_rank(std::span<Rank> ranks, int rank, std::vector<char*> cells) {
    const int cores = stay_on_core_of(rank);
    BarePeer peer(ranks, rank, static_cast<int>(ranks.size()) > cores);
    return run_cells(peer, static_cast<int>(cells.size()), cells.data(), 0);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) return EXIT_FAILURE;
    std::vector<char*> cells;
    std::copy_if(argv + 2, argv + argc, std::back_inserter(cells), [](const std::string& cell) {
        return cell.starts_with("all_reduce:") || cell.starts_with("barrier:");
    });
    const auto size = static_cast<std::size_t>(std::stoi(argv[1]));
    const std::span ranks(new (map_shared(size * sizeof(Rank))) Rank[size], size);
    for (Rank& one : ranks) one.heap = map_shared(kHeapBytes);
    std::vector<pid_t> others;
    for (std::size_t rank = 1; rank < size; ++rank) {
        others.push_back(::fork());
        if (others.back() < 0) throw std::system_error(errno, std::system_category(), "fork");
        if (others.back() == 0) ::_exit(run_rank(ranks, static_cast<int>(rank), cells));
    }
    int failed = run_rank(ranks, 0, cells);
    for (const pid_t other : others) {
        int status = 0;
        if (::waitpid(other, &status, 0) != other || status != 0) failed = EXIT_FAILURE;
    }
    return failed;
}
