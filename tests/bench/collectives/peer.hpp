#pragma once
// Peer: one way to do collectives, and the loop that times it. Each way is a program of its own, started by the
// launcher that goes with it; all run the same loop, so that only the collectives differ. Standard library only.
//
//     PROGRAM OP:BYTES:CALLS …        for example all_reduce:1048576:50 all_reduce.bf16:1048576:50 barrier:0:10000
//
// "gradients", whose bytes are not looked at, synchronises those of ResNet-50: 102 MB, in buckets as DDP cuts them.
// Rank 0 prints a line for each: "CELL MEDIAN_US P999_US BEFORE_NS AFTER_NS", times of the slowest rank, and how far
// apart the first two CPUs were before and after it (cache_state.hpp).

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ddp/float16.hpp"
#include "tests/bench/collectives/cache_state.hpp"
#include "tests/bench/resnet50.hpp"

namespace ddprun::bench {

enum class Half { kF16, kBf16 };

class Peer {
public:
    virtual ~Peer() = default;
    [[nodiscard]] virtual int rank() const = 0;
    virtual void barrier() = 0;
    [[nodiscard]] virtual double largest(double value) = 0;  ///< over all ranks
    /// The kind of memory that this way works best with, or the kind that is to be measured.
    [[nodiscard]] virtual float* allocate(std::size_t count) = 0;
    virtual void all_reduce(float* values, std::size_t count) = 0;  ///< sum, in place
    virtual void broadcast(float* values, std::size_t count) = 0;   ///< from rank 0
    /// Sends `values` to the next rank, and receives as many from the one before into inbox(). Not every way can.
    virtual void send_receive(float* /*values*/, std::size_t /*count*/) {
        throw std::invalid_argument("this one has no sends and receives");
    }
    /// Of the whole, in place; a multiple of the ranks. Only of who has_parts().
    virtual void reduce_scatter(float* /*values*/, std::size_t /*count*/) {}
    virtual void all_gather(float* /*values*/, std::size_t /*count*/) {}
    [[nodiscard]] virtual bool has_parts() const { return false; }
    /// all_reduce of elements of 16 bits. Not every way can.
    virtual void all_reduce_half(std::uint16_t* /*values*/, std::size_t /*count*/, Half /*type*/) {
        throw std::invalid_argument("this one knows no f16 and bf16");
    }
    /// Microseconds of each of `calls` exchanges of ResNet-50's gradients, written anew before each.
    [[nodiscard]] virtual std::vector<double> time_gradients(std::size_t calls);

protected:
    [[nodiscard]] float* inbox(std::size_t count) {
        if (count > inbox_count_) inbox_ = allocate(count);
        inbox_count_ = std::max(inbox_count_, count);
        return inbox_;
    }

private:
    float* inbox_ = nullptr;
    std::size_t inbox_count_ = 0;
};

/// How long each of `calls` runs of `exchange` takes, each after a `prepare` and a barrier.
template <typename Prepare, typename Exchange>
std::vector<double> time_each(Peer& peer, std::size_t calls, Prepare prepare, Exchange exchange) {
    using Clock = std::chrono::steady_clock;
    std::vector<double> us(calls);
    for (double& time : us) {
        prepare();
        peer.barrier();
        const auto began = Clock::now();
        exchange();
        time = std::chrono::duration<double, std::micro>(Clock::now() - began).count();
    }
    return us;
}

/// Elements of DDP's buckets of them: 1 MiB first, then 25 MiB, by the reverse order of registration; the tensor that
/// crosses the limit is inside.
inline std::vector<std::size_t> gradient_buckets() {
    const auto counts = resnet50();
    std::vector<std::size_t> buckets{0};
    for (auto count = counts.rbegin(); count != counts.rend(); ++count) {
        const std::size_t limit = (buckets.size() == 1 ? 1 : 25) * (std::size_t{1} << 20) / sizeof(float);
        if (buckets.back() >= limit) buckets.push_back(0);
        buckets.back() += *count;
    }
    return buckets;
}

/// Who has no reducer calls all_reduce for each bucket.
inline std::vector<double> Peer::time_gradients(std::size_t calls) {
    const auto buckets = gradient_buckets();
    std::vector<float*> values;
    for (const std::size_t count : buckets) values.push_back(allocate(count));
    const auto write = [&] {
        for (std::size_t i = 0; i < buckets.size(); ++i) std::fill_n(values[i], buckets[i], float(rank() + 1));
    };
    const auto exchange = [&] {
        for (std::size_t i = 0; i < buckets.size(); ++i) all_reduce(values[i], buckets[i]);
    };
    (void)time_each(*this, 2, write, exchange);  // connections, first page faults
    return time_each(*this, calls, write, exchange);
}

struct Cell {
    std::string text;  ///< as it was given
    std::string op;
    std::size_t bytes = 0;
    std::size_t calls = 0;
};

inline Cell parse_cell(const std::string& text) {
    const auto first = text.find(':');
    const auto second = text.find(':', first + 1);
    if (second == std::string::npos) throw std::invalid_argument("not OP:BYTES:CALLS: " + text);
    return {text, text.substr(0, first), std::stoul(text.substr(first + 1, second)),
            std::stoul(text.substr(second + 1))};
}

/// A cell's buffer holds `value`, in its own type.
inline void fill(const Cell& cell, float* values, float value) {
    auto* const halves = reinterpret_cast<std::uint16_t*>(values);
    const std::size_t count = cell.bytes / sizeof(std::uint16_t);
    if (cell.op.ends_with(".f16"))
        std::fill_n(halves, count, ddp::Float16(value).bits());
    else if (cell.op.ends_with(".bf16"))
        std::fill_n(halves, count, ddp::BFloat16(value).bits());
    else
        std::fill_n(values, cell.bytes / sizeof(float), value);
}

inline void call(Peer& peer, const Cell& cell, float* values) {
    auto* const halves = reinterpret_cast<std::uint16_t*>(values);
    if (cell.op == "all_reduce.f16") return peer.all_reduce_half(halves, cell.bytes / sizeof *halves, Half::kF16);
    if (cell.op == "all_reduce.bf16") return peer.all_reduce_half(halves, cell.bytes / sizeof *halves, Half::kBf16);
    if (cell.op == "all_reduce") return peer.all_reduce(values, cell.bytes / sizeof(float));
    if (cell.op == "broadcast") return peer.broadcast(values, cell.bytes / sizeof(float));
    if (cell.op == "sendrecv") return peer.send_receive(values, cell.bytes / sizeof(float));
    if (cell.op == "reduce_scatter") return peer.reduce_scatter(values, cell.bytes / sizeof(float));
    if (cell.op == "all_gather") return peer.all_gather(values, cell.bytes / sizeof(float));
    if (cell.op == "barrier") return peer.barrier();
    throw std::invalid_argument("no collective is called " + cell.op);
}

/// Microseconds of each call. Large buffers are written anew by their rank before each, as gradients are; small ones
/// are called back to back, for a barrier between them would cost more than they do.
inline std::vector<double> time_calls(Peer& peer, const Cell& cell, float* values) {
    using Clock = std::chrono::steady_clock;
    constexpr std::size_t kLarge = 64 << 10;
    const auto once = [&] { call(peer, cell, values); };
    if (cell.bytes >= kLarge) {
        return time_each(
            peer, cell.calls, [&] { fill(cell, values, float(peer.rank() + 1)); }, once);
    }
    std::vector<double> us(cell.calls);
    for (std::size_t i = 0; i < cell.calls; ++i) {
        const auto began = Clock::now();
        once();
        us[i] = std::chrono::duration<double, std::micro>(Clock::now() - began).count();
    }
    return us;
}

inline std::vector<double> time_cell(Peer& peer, const Cell& cell) {
    if (cell.op == "gradients") return peer.time_gradients(cell.calls);
    float* values = peer.allocate(cell.bytes / sizeof(float) + 1);
    fill(cell, values, 1);
    for (int i = 0; i < 5; ++i) call(peer, cell, values);  // connections, first page faults
    fill(cell, values, 1);
    peer.barrier();
    return time_calls(peer, cell, values);
}

/// Of rank 0; the others leave it the CPUs meanwhile.
inline double look_at_caches(Peer& peer) {
    constexpr std::chrono::milliseconds kLook{10};
    double ns = 0;
    peer.barrier();
    if (peer.rank() == 0)
        ns = cache_round_trip_ns();
    else
        std::this_thread::sleep_for(kLook);
    peer.barrier();
    return ns;
}

/// `before`: what look_at_caches() said last. What it says now.
inline double run_cell(Peer& peer, const Cell& cell, double before) {
    if (!peer.has_parts() && (cell.op == "reduce_scatter" || cell.op == "all_gather")) return before;
    auto us = time_cell(peer, cell);
    std::sort(us.begin(), us.end());
    const double median = peer.largest(us[us.size() / 2]);
    const double late = peer.largest(us[std::min(us.size() - 1, us.size() * 999 / 1000)]);
    const double after = look_at_caches(peer);
    if (peer.rank() == 0) std::printf("%s %.4f %.4f %.1f %.1f\n", cell.text.c_str(), median, late, before, after);
    std::fflush(stdout);
    return after;
}

inline int run_cells(Peer& peer, int argc, char** argv, int first = 1) {
    double caches_ns = look_at_caches(peer);
    for (int i = first; i < argc; ++i) caches_ns = run_cell(peer, parse_cell(argv[i]), caches_ns);
    return EXIT_SUCCESS;
}

}  // namespace ddprun::bench
