// The floor of an all-reduce inside a node of buffers that no peer can map: as many processes as ranks, each on a core
// of its own as far as there are, which move what such an all-reduce has to move, in pieces. Nobody waits for anybody
// while the clock runs, so what they read is not what it should be.
//
// staged: what peers reduce of the own buffer is copied to a slot in shared memory, and so is what was reduced for
// them, as they copy it from there to their own. cma: the kernel copies both, straight from the memory of the peer.
//
//     bench_floor_foreign staged|cma RANKS CELL…             of the cells, those that are all_reduce
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <span>
#include <system_error>

#include "tests/bench/collectives/peer.hpp"
#include "tests/bench/collectives/slice_sum.hpp"

namespace {

using namespace ddprun::bench;

constexpr std::size_t kPiece = (256u << 10) / sizeof(float);  ///< of the whole buffer
constexpr std::size_t kHugePage = 2u << 20;
constexpr int kCollapse = 25;  ///< MADV_COLLAPSE (Linux 6.1), which older headers lack: huge pages, now

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::system_category(), what); }

/// What the processes share of one rank. Two pieces of each kind, as those that overlap have.
struct alignas(128) Rank {
    std::atomic<std::uint64_t> number{0};  ///< of meetings to which it has come
    double value = 0;
    pid_t pid = 0;
    float* buffer = nullptr;  ///< in its own memory
    float* slot = nullptr;    ///< at the same address in all processes
    [[nodiscard]] float* given(std::size_t piece) const { return slot + piece % 2 * kPiece; }
    [[nodiscard]] float* reduced(std::size_t piece) const { return slot + (2 + piece % 2) * kPiece; }
};

std::byte* map_shared(std::size_t bytes) {
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("mmap");
    std::memset(memory, 0, bytes);
    ::madvise(memory, bytes, kCollapse);  // as the library does, where the kernel can
    return static_cast<std::byte*>(memory);
}

void add(float* __restrict to, const float* __restrict more, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) to[i] += more[i];
}

void add_into_both(float* __restrict to, const float* __restrict more, float* __restrict also, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) also[i] = to[i] = to[i] + more[i];
}

class ForeignFloor final : public Peer {
public:
    ForeignFloor(std::span<Rank> ranks, int rank, bool staged)
        : ranks_(ranks), own_(ranks[static_cast<std::size_t>(rank)]), rank_(rank), staged_(staged) {
        own_.pid = ::getpid();
    }
    int rank() const override { return rank_; }
    void barrier() override {
        own_.number.store(++number_, std::memory_order_release);
        for (const Rank& one : ranks_) {
            while (one.number.load(std::memory_order_acquire) < number_) ::sched_yield();
        }
    }
    double largest(double value) override {
        own_.value = value;
        barrier();
        for (const Rank& one : ranks_) value = std::max(value, one.value);
        barrier();
        return value;
    }
    float* allocate(std::size_t count) override {
        memory_.push_back(std::make_unique<float[]>(count));
        own_.buffer = memory_.back().get();
        barrier();
        return own_.buffer;
    }
    void broadcast(float*, std::size_t) override {}
    void all_reduce(float* values, std::size_t count) override {
        for (std::size_t at = 0, piece = 0; at < count; at += kPiece, ++piece) {
            const std::size_t size = std::min(kPiece, count - at);
            if (staged_) {
                move_staged(values + at, piece, size);
            } else {
                pull(values, at, size);
            }
        }
    }

private:
    /// Of a piece of `size`: where the slice of `rank` begins.
    std::size_t begin_of(std::size_t rank, std::size_t size) const { return size * rank / ranks_.size(); }

    template <typename Work>
    void for_others(std::size_t size, Work work) {
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
            const std::size_t begin = begin_of(rank, size);
            if (static_cast<int>(rank) != rank_) work(ranks_[rank], begin, begin_of(rank + 1, size) - begin);
        }
    }

    void move_staged(float* values, std::size_t piece, std::size_t size) {
        for_others(size, [&](Rank&, std::size_t begin, std::size_t length) {
            std::memcpy(own_.given(piece) + begin, values + begin, length * sizeof(float));
        });
        const std::size_t mine = begin_of(static_cast<std::size_t>(rank_), size);
        const std::size_t length = begin_of(static_cast<std::size_t>(rank_) + 1, size) - mine;
        for_others(size, [&](Rank& peer, std::size_t, std::size_t) {
            add_into_both(values + mine, peer.given(piece) + mine, own_.reduced(piece) + mine, length);
        });
        for_others(size, [&](Rank& peer, std::size_t begin, std::size_t theirs) {
            std::memcpy(values + begin, peer.reduced(piece) + begin, theirs * sizeof(float));
        });
    }

    void pull(float* values, std::size_t at, std::size_t size) {
        const std::size_t mine = at + begin_of(static_cast<std::size_t>(rank_), size);
        const std::size_t length = at + begin_of(static_cast<std::size_t>(rank_) + 1, size) - mine;
        for_others(size, [&](Rank& peer, std::size_t, std::size_t) {
            read(peer, scratch_.get(), peer.buffer + mine, length);
            add(values + mine, scratch_.get(), length);
        });
        for_others(size, [&](Rank& peer, std::size_t begin, std::size_t theirs) {
            read(peer, values + at + begin, peer.buffer + at + begin, theirs);
        });
    }

    static void read(const Rank& peer, float* to, float* from, std::size_t count) {
        const iovec here{to, count * sizeof(float)};
        const iovec there{from, count * sizeof(float)};
        if (::process_vm_readv(peer.pid, &here, 1, &there, 1, 0) != static_cast<ssize_t>(here.iov_len))
            fail("process_vm_readv");
    }

    const std::span<Rank> ranks_;
    Rank& own_;
    const int rank_;
    const bool staged_;
    std::uint64_t number_ = 0;
    std::vector<std::unique_ptr<float[]>> memory_;
    const std::unique_ptr<float[]> scratch_ = std::make_unique<float[]>(kPiece);
};

int run_rank(std::span<Rank> ranks, int rank, bool staged, std::vector<char*> cells) {
    stay_on_core_of(rank);
    ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);  // where Yama asks for it
    ForeignFloor peer(ranks, rank, staged);
    peer.barrier();
    return run_cells(peer, static_cast<int>(cells.size()), cells.data(), 0);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) return EXIT_FAILURE;
    const bool staged = std::string(argv[1]) == "staged";
    std::vector<char*> cells;
    std::copy_if(argv + 3, argv + argc, std::back_inserter(cells),
                 [](const std::string& cell) { return cell.starts_with("all_reduce:"); });
    const auto size = static_cast<std::size_t>(std::stoi(argv[2]));
    const std::span ranks(new (map_shared(size * sizeof(Rank))) Rank[size], size);
    for (Rank& one : ranks) one.slot = reinterpret_cast<float*>(map_shared(kHugePage));
    std::vector<pid_t> others;
    for (std::size_t rank = 1; rank < size; ++rank) {
        others.push_back(::fork());
        if (others.back() < 0) fail("fork");
        if (others.back() == 0) ::_exit(run_rank(ranks, static_cast<int>(rank), staged, cells));
    }
    int failed = run_rank(ranks, 0, staged, cells);
    for (const pid_t other : others) {
        int status = 0;
        if (::waitpid(other, &status, 0) != other || status != 0) failed = EXIT_FAILURE;
    }
    return failed;
}
