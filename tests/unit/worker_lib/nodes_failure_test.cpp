// Ranks that give up while a neighbour sends sums of what they gave to other nodes: whose ranks hear of it only later,
// and must not end well with what has been written to that memory since.

#include <algorithm>
#include <future>
#include <limits>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/all_reduce_cases.hpp"
#include "tests/unit/worker_lib/network_rules.hpp"
#include "tests/unit/worker_lib/node_team.hpp"
#include "worker_lib/src/native/sum_stream.hpp"

using namespace ddp;
using namespace ddp::testing;

namespace {

constexpr std::size_t kCount = 300'000;
constexpr int kRanks = 3;

std::span<float> arena_memory(ProcessGroup& group, std::size_t count) {
    return {static_cast<float*>(group.arena().allocate(count * sizeof(float))), count};
}

/// How many elements are wrong of results that are no error. Each step sums up other numbers, so that those of the step
/// before are wrong, too.
template <typename Reduce>
int train_until_it_fails(std::span<float> give, std::span<float> take, Reduce reduce) {
    int wrong = 0;
    try {
        for (float step = 1;; ++step) {
            std::ranges::fill(give, step);
            reduce();
            wrong += static_cast<int>(std::ranges::count_if(take, [&](float sum) { return sum != kRanks * step; }));
        }
    } catch (const Error&) {
#if !defined(__SANITIZE_THREAD__)  // which would call it a race: it is one, and nobody may believe what he has read
        std::ranges::fill(give, std::numeric_limits<float>::quiet_NaN());
#endif
    }
    return wrong;
}

/// One rank of a node aborts at some moment, while the other sends to another node for both.
template <typename Train>
void abort_at_any_moment(Train train) {
    std::mt19937 random(1);
    for (int round = 0; round < (kThorough ? 40 : 10); ++round) {
        const auto pause = std::chrono::microseconds(std::uniform_int_distribution(0, 20'000)(random));
        const auto wrong = run_ranks({.ranks_per_node = {2, 1}}, [&](Context& context) {
            std::future<void> aborter;
            const auto abort_later = [&] {
                std::this_thread::sleep_for(pause);
                context.world().abort("enough");
            };
            if (context.rank() == 1) aborter = std::async(std::launch::async, abort_later);
            return train(context);
        });
        CHECK(wrong == std::vector<int>(kRanks, 0));
    }
}

}  // namespace

TEST_CASE("no sum leaves a node that was read of a rank that had given up", "[native][unit]") {
    using detail::NetworkAlgorithm;
    using detail::Turn;
    const auto algorithm = GENERATE(NetworkAlgorithm::kScatter, NetworkAlgorithm::kDirect);
    const bool leaves = GENERATE(true, false);
    constexpr std::size_t kPieces = 3;
    const std::size_t chunk = detail::SumStream::chunk_elements(2, sizeof(float));
    NodeTeam node(2, kPieces * chunk * (algorithm == NetworkAlgorithm::kScatter ? 2 : 1));
    const std::size_t count = node.one.buffer.count;
    const detail::AllReduceParts parts(node.team, node.one, node.own);
    const detail::Windows windows{.count = count, .most = count, .grain = parts.grain};
    detail::SumStream stream(parts, algorithm, windows, true);
    stream.go_on(1, 1);

    const auto first = stream.next_out(0);
    REQUIRE(first.turn == Turn::kNow);
    REQUIRE(first.bytes.size() == chunk * sizeof(float));
    CHECK(*reinterpret_cast<const float*>(first.bytes.data()) == 3);
    stream.sent(0);
    if (leaves) {
        node.ranks[1].stop(kEnough);
        node.ranks[1].leave(detail::Departure::kLeft);
    } else {
        node.ranks[1].poison(kEnough);
    }
    std::ranges::fill(node.values(1, count), std::numeric_limits<float>::quiet_NaN());
    const Error error = failure_of([&] { static_cast<void>(stream.next_out(0)); });
    CHECK(error.code() == (leaves ? ErrorCode::PeerLost : ErrorCode::Aborted));
}

TEST_CASE("when a rank aborts at any moment ranks of other nodes get the whole sum or an error", "[native][unit]") {
    const auto* const text = GENERATE(values<const char*>({"direct:0-max", "rd:0-max", "scatter:0-max"}));
    CAPTURE(text);
    const Rules rules(text);
    abort_at_any_moment([](Context& context) {
        auto& group = context.world();
        const auto give = arena_memory(group, kCount);
        const auto take = arena_memory(group, kCount);
        return train_until_it_fails(give, take,
                                    [&] { group.all_reduce(buffer(give), buffer(take), ReduceOp::Sum).wait(); });
    });
}

TEST_CASE("when a rank aborts at any moment ranks of other nodes get their whole part of a sum or an error",
          "[native][unit]") {
    abort_at_any_moment([](Context& context) {
        auto& group = context.world();
        const auto give = arena_memory(group, kCount);
        const auto take = arena_memory(group, kCount / kRanks);
        return train_until_it_fails(give, take,
                                    [&] { group.reduce_scatter(buffer(give), buffer(take), ReduceOp::Sum).wait(); });
    });
}
