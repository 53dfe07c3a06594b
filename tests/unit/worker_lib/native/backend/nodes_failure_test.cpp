// Ranks that give up while a neighbour sends their data, or sums of it, to other nodes: ranks there learn of it only
// later, and must not end well with what has been written to that memory since.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <limits>
#include <random>
#include <span>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/all_reduce_cases.hpp"
#include "tests/unit/worker_lib/support/network_rules.hpp"
#include "tests/unit/worker_lib/support/node_collective.hpp"
#include "worker_lib/src/native/collectives/sum_stream.hpp"

using namespace ddp;
using namespace ddp::testing;

namespace {

constexpr std::size_t kCount = 300'000;
constexpr int kRanks = 3;

std::span<float> arena_memory(ProcessGroup& group, std::size_t count) {
    return {static_cast<float*>(group.arena().allocate(count * sizeof(float))), count};
}

/// Which rank aborts, and when: a time after it has begun a number of operations.
struct Moment {
    int rank = 1;
    int operation = 1;
    std::chrono::microseconds pause{};
    std::atomic<int> begun{0};

    void begin_one(const Context& context) {
        if (context.rank() != rank) return;
        ++begun;
        begun.notify_all();
    }
    void abort(ProcessGroup& group) {
        for (int now = 0; (now = begun) < operation;) begun.wait(now);
        std::this_thread::sleep_for(pause);
        group.abort("enough");
    }
};

/// Returns how many elements of `take` are wrong after operations without an error. Each step uses other numbers, so
/// that those of the step before are wrong, too: `give` holds its number, and the result must be `factor` times that.
template <typename Operate>
int train_until_it_fails(Context& context, Moment& moment, std::span<float> give, std::span<float> take, float factor,
                         Operate operate) {
    int wrong = 0;
    try {
        for (float step = 1;; ++step) {
            std::ranges::fill(give, step);
            moment.begin_one(context);
            operate();
            wrong += static_cast<int>(std::ranges::count_if(take, [&](float value) { return value != factor * step; }));
        }
    } catch (const Error&) {
#if !defined(__SANITIZE_THREAD__)  // which would report a race: it is one, and the value read must not be used
        std::ranges::fill(give, std::numeric_limits<float>::quiet_NaN());
#endif
    }
    return wrong;
}

/// One rank of a node aborts at some moment of an operation, while another sends to another node for both.
template <typename Train>
void abort_at_any_moment(const std::vector<int>& shape, int rank, Train train) {
    std::mt19937 random(1);
    for (int round = 0; round < (kThorough ? 40 : 10); ++round) {
        Moment moment;
        moment.rank = rank;
        moment.operation = std::uniform_int_distribution(2, 12)(random);
        moment.pause = std::chrono::microseconds(std::uniform_int_distribution(0, 1'500)(random));
        const auto wrong = run_ranks({.ranks_per_node = shape}, [&](Context& context) {
            std::future<void> aborter;
            if (context.rank() == rank)
                aborter = std::async(std::launch::async, [&] { moment.abort(context.world()); });
            return train(context, moment);
        });
        CHECK(wrong == std::vector<int>(wrong.size(), 0));
        CHECK(moment.begun >= moment.operation);
    }
}

/// An operation that only moves data, and how much each rank contributes; the whole is as large as that of the others.
struct Moving {
    const char* name;
    std::size_t shares;  ///< of kCount, in what each rank gives
    std::size_t gets;
    void (*operate)(ProcessGroup& group, std::span<float> give, std::span<float> take);
};

}  // namespace

TEST_CASE("no sum leaves a node that was read of a rank that had given up", "[native][unit]") {
    using detail::NetworkAlgorithm;
    using detail::Readiness;
    const auto algorithm = GENERATE(NetworkAlgorithm::kScatter, NetworkAlgorithm::kDirect);
    const bool leaves = GENERATE(true, false);
    constexpr std::size_t kPieces = 3;
    const std::size_t message = detail::SumStream::message_elements(2, sizeof(float));
    NodeCollective node(2, kPieces * message * (algorithm == NetworkAlgorithm::kScatter ? 2 : 1));
    const std::size_t count = node.one.buffer.count;
    const detail::AllReduceParts parts(node.context, node.one, node.own);
    const detail::Windows windows{.count = count, .max_elements = count, .grain = parts.grain};
    detail::SumStream stream(parts, algorithm, windows, true);
    stream.go_on(1, 1);

    const auto first = stream.next_out(0);
    REQUIRE(first.readiness == Readiness::kNow);
    REQUIRE(first.bytes.size() == message * sizeof(float));
    CHECK(*reinterpret_cast<const float*>(first.bytes.data()) == 3);
    stream.sent(0);
    if (leaves) {
        node.ranks[1].failure.stop(kEnough);
        node.ranks[1].progress.leave(detail::Departure::kLeft);
    } else {
        node.ranks[1].failure.poison(kEnough);
    }
    std::ranges::fill(node.values(1, count), std::numeric_limits<float>::quiet_NaN());
    const Error error = failure_of([&] { static_cast<void>(stream.next_out(0)); });
    CHECK(error.code() == (leaves ? ErrorCode::PeerLost : ErrorCode::Aborted));
}

TEST_CASE("when a rank aborts at any moment ranks of other nodes get the whole sum or an error", "[native][unit]") {
    const auto* const text = GENERATE(values<const char*>({"direct:0-max", "rd:0-max", "scatter:0-max"}));
    CAPTURE(text);
    const Rules rules(text);
    abort_at_any_moment({2, 1}, 1, [](Context& context, Moment& moment) {
        auto& group = context.world();
        const auto give = arena_memory(group, kCount);
        const auto take = arena_memory(group, kCount);
        return train_until_it_fails(context, moment, give, take, kRanks,
                                    [&] { group.all_reduce(give, take, ReduceOp::Sum).wait(); });
    });
}

TEST_CASE("when a rank aborts at any moment ranks of other nodes get their whole part of a sum or an error",
          "[native][unit]") {
    abort_at_any_moment({2, 1}, 1, [](Context& context, Moment& moment) {
        auto& group = context.world();
        const auto give = arena_memory(group, kCount);
        const auto take = arena_memory(group, kCount / kRanks);
        return train_until_it_fails(context, moment, give, take, kRanks,
                                    [&] { group.reduce_scatter(give, take, ReduceOp::Sum).wait(); });
    });
}

TEST_CASE("when a rank aborts at any moment ranks of other nodes get what was broadcast or an error",
          "[native][unit]") {
    // Ranks of the root's node send its buffer; those of another hand on that of their leader.
    const auto& [shape, root, rank] =
        GENERATE(values<std::tuple<std::vector<int>, int, int>>({{{2, 1}, 1, 1}, {{2, 2, 2}, 0, 2}}));
    abort_at_any_moment(shape, rank, [root = root](Context& context, Moment& moment) {
        auto& group = context.world();
        const auto both = arena_memory(group, kCount);
        return train_until_it_fails(context, moment, both, both, 1, [&] { group.broadcast(both, root).wait(); });
    });
}

TEST_CASE("when a rank aborts at any moment ranks of other nodes get what was sent to them or an error",
          "[native][unit]") {
    // Of scatter the carrier sends one block from its neighbour's buffer; of the others it puts several together.
    const auto moving = GENERATE(values<Moving>({
        {"scatter", kRanks, 1,
         [](ProcessGroup& group, std::span<float> give, std::span<float> take) {
             group.scatter(group.rank() == 1 ? Buffer(give) : Buffer{}, Buffer(take), 1).wait();
         }},
        {"all_gather", 1, kRanks,
         [](ProcessGroup& group, std::span<float> give, std::span<float> take) {
             group.all_gather(give, take).wait();
         }},
        {"gather", 1, kRanks,
         [](ProcessGroup& group, std::span<float> give, std::span<float> take) {
             group.gather(give, group.rank() == 2 ? Buffer(take) : Buffer{}, 2).wait();
             if (group.rank() != 2) std::ranges::fill(take, give.front());
         }},
        {"all_to_all", kRanks, kRanks,
         [](ProcessGroup& group, std::span<float> give, std::span<float> take) {
             group.all_to_all(give, take).wait();
         }},
    }));
    CAPTURE(moving.name);
    abort_at_any_moment({2, 1}, 1, [&](Context& context, Moment& moment) {
        auto& group = context.world();
        const auto give = arena_memory(group, moving.shares * kCount);
        const auto take = arena_memory(group, moving.gets * kCount);
        return train_until_it_fails(context, moment, give, take, 1, [&] { moving.operate(group, give, take); });
    });
}
