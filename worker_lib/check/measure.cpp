#include "worker_lib/check/measure.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <span>

#include "worker_lib/check/bandwidth_schedule.hpp"

namespace ddp::check {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// A node that takes longer is lost; the error names its rank.
const OpOptions kOptions{.timeout = std::chrono::minutes(5)};
constexpr int kClockTag = 1;
constexpr int kPlanTag = 2;
constexpr int kMessageTag = 3;

constexpr int kClockSamples = 8;

constexpr std::int64_t kFirstBytes = std::int64_t{64} << 10;
constexpr std::int64_t kGrowth = 4;  // as long as a message fits into a window, up to kMessageBytes
constexpr std::int64_t kMessageBytes = std::int64_t{4} << 20;
// The best window counts: on a shared host a window may be disturbed, and a link that is slow is slow in all of them.
constexpr int kWindows = 5;
constexpr double kWindowSeconds = 0.04;
constexpr double kPairSeconds = 0.4;       // after that no further window: a very slow link must not hold up all others
constexpr std::int64_t kMaxMessages = 64;  // of a window

constexpr std::size_t kIntegers = (std::size_t{64} << 10) + 3;
constexpr int kAllReduces = 3;  // the first one also makes connections
constexpr std::size_t kFloats = kAllReduceBytes / sizeof(float);

/// Returns the time of day in seconds.
double now_of_day() { return Seconds(std::chrono::system_clock::now().time_since_epoch()).count(); }

ClockOffset measure_clock(ProcessGroup& world, int leader) {
    ClockOffset best{.seconds = 0, .error_seconds = 1e9};
    for (int i = 0; i < kClockSamples; ++i) {
        double there = 0;
        const double before = now_of_day();
        const auto started = Clock::now();  // a clock that is set meanwhile does not change the length of the trip
        world.send(ConstBuffer(before), leader, kClockTag, kOptions).wait();
        world.recv(Buffer(there), leader, kClockTag, kOptions).wait();
        const double half_trip = Seconds(Clock::now() - started).count() / 2;
        if (half_trip < best.error_seconds) best = {there - (before + half_trip), half_trip};
    }
    return best;
}

void answer_clock(ProcessGroup& world) {
    for (int i = 0; i < kClockSamples; ++i) {
        double question = 0;
        world.recv(Buffer(question), 0, kClockTag, kOptions).wait();
        const double here = now_of_day();
        world.send(ConstBuffer(here), 0, kClockTag, kOptions).wait();
    }
}

/// The exchanges with one peer. The leading side decides their size and number, because both have to agree.
class Exchange {
public:
    Exchange(ProcessGroup& world, int peer) : world_(world), peer_(peer), out_(kMessageBytes), in_(kMessageBytes) {}

    /// Returns the bandwidth each way, in GB/s.
    double lead() {
        (void)order(1, 1);  // the peer may still be busy with its partner of the round before
        std::int64_t bytes = kFirstBytes;
        double seconds = order(bytes, 1);  // of one message
        double best = rate(bytes, seconds);
        double spent = seconds;
        for (int window = 0; window < kWindows && spent < kPairSeconds; ++window) {
            while (bytes < kMessageBytes && seconds * kGrowth < kWindowSeconds) {
                bytes *= kGrowth;
                seconds *= kGrowth;
            }
            const auto fitting = static_cast<std::int64_t>(kWindowSeconds / seconds);
            const auto messages = std::clamp(fitting, std::int64_t{1}, kMaxMessages);
            const double elapsed = order(bytes, messages);
            best = std::max(best, rate(bytes * messages, elapsed));
            seconds = elapsed / static_cast<double>(messages);
            spent += elapsed;
        }
        (void)order(0, 0);
        return best;
    }

    void follow() {
        for (;;) {
            std::array<std::int64_t, 2> plan{};
            world_.recv(Buffer(plan), peer_, kPlanTag, kOptions).wait();
            if (plan[1] == 0) return;
            exchange(plan[0], plan[1]);
        }
    }

private:
    static double rate(std::int64_t bytes, double seconds) { return static_cast<double>(bytes) / seconds / 1e9; }

    /// Returns the seconds that so many messages each way take.
    double order(std::int64_t bytes, std::int64_t messages) {
        const std::array plan{bytes, messages};
        world_.send(ConstBuffer(plan), peer_, kPlanTag, kOptions).wait();
        const auto started = Clock::now();
        exchange(bytes, messages);
        return std::max(Seconds(Clock::now() - started).count(), 1e-9);
    }

    void exchange(std::int64_t bytes, std::int64_t messages) {
        const auto size = static_cast<std::size_t>(bytes);
        for (std::int64_t i = 0; i < messages; ++i) {
            TransferBatch both = world_.batch();
            both.send(ConstBuffer(std::span<const char>(out_.data(), size)), peer_, kMessageTag);
            both.recv(Buffer(std::span<char>(in_.data(), size)), peer_, kMessageTag);
            both.start(kOptions).wait();
        }
    }

    ProcessGroup& world_;
    int peer_;
    std::vector<char> out_;
    std::vector<char> in_;
};

/// Fills `values` with this rank's part of a sum, and returns what the sum must be after `ranks` of them.
template <typename T, typename Part>
std::vector<T> fill(std::vector<T>& values, int rank, int ranks, Part part, std::size_t period) {
    std::int64_t sum_of_parts = 0;
    for (int other = 0; other < ranks; ++other) sum_of_parts += part(other);
    std::vector<T> sums(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
        const auto factor = static_cast<std::int64_t>(i % period + 1);
        values[i] = static_cast<T>(factor * part(rank));
        sums[i] = static_cast<T>(factor * sum_of_parts);
    }
    return sums;
}

template <typename T>
std::int64_t count_wrong(const std::vector<T>& values, const std::vector<T>& sums) {
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < values.size(); ++i) wrong += values[i] == sums[i] ? 0 : 1;
    return wrong;
}

}  // namespace

std::vector<std::optional<ClockOffset>> measure_clocks(ProcessGroup& world, const std::vector<int>& leaders) {
    if (world.rank() != leaders.front()) {
        if (std::ranges::find(leaders, world.rank()) != leaders.end()) answer_clock(world);
        return {};
    }
    std::vector<std::optional<ClockOffset>> offsets{ClockOffset{}};
    for (std::size_t i = 1; i < leaders.size(); ++i) offsets.push_back(measure_clock(world, leaders[i]));
    return offsets;
}

std::vector<Link> measure_links(ProcessGroup& world, const std::vector<int>& leaders) {
    const auto self = std::ranges::find(leaders, world.rank());
    if (self == leaders.end()) return {};
    const int node = static_cast<int>(self - leaders.begin());
    const int nodes = static_cast<int>(leaders.size());
    std::vector<Link> links;
    for (const int round : rounds_of(nodes)) {
        const std::optional<int> partner = partner_of(node, nodes, round);
        if (!partner) continue;
        Exchange exchange(world, leaders[static_cast<std::size_t>(*partner)]);
        if (node < *partner)
            links.push_back({node, *partner, exchange.lead()});
        else
            exchange.follow();
    }
    return links;
}

void verify_all_reduce(ProcessGroup& world, RankResult& result) {
    // Primes as periods: a block that arrives at another block's position is found.
    std::vector<std::int64_t> integers(kIntegers);
    const auto integer_part = [](int rank) { return std::int64_t{rank} + 1; };
    const auto integer_sums = fill(integers, world.rank(), world.size(), integer_part, 1021);
    world.all_reduce(integers, ReduceOp::Sum, kOptions).wait();
    result.wrong_integers = count_wrong(integers, integer_sums);

    const auto float_part = [](int rank) { return std::int64_t{rank % 2} + 1; };  // sums are below 2^24, so exact
    for (int i = 0; i < kAllReduces; ++i) {
        std::vector<float> floats(kFloats);
        const auto float_sums = fill(floats, world.rank(), world.size(), float_part, 61);
        world.barrier(kOptions).wait();
        const auto started = Clock::now();
        world.all_reduce(floats, ReduceOp::Sum, kOptions).wait();
        const double seconds = Seconds(Clock::now() - started).count();
        result.all_reduce_seconds = i == 0 ? seconds : std::min(result.all_reduce_seconds, seconds);
        result.wrong_floats += count_wrong(floats, float_sums);
    }
}

}  // namespace ddp::check
