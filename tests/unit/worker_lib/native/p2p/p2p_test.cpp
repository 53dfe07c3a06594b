// Sends and receives in every shape of world and from every kind of memory; order and tags; calls that are refused.

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "tests/unit/worker_lib/support/rank_memory.hpp"
#include "tests/unit/worker_lib/support/world_errors.hpp"
#include "worker_lib/src/native/shm/message_ring.hpp"
#include "worker_lib/src/native/shm/segment.hpp"

using namespace ddp;
using namespace ddp::testing;

namespace {

using Ints = std::vector<std::int32_t>;

/// Returns what `from` sends to `to`: no two elements are equal.
std::int32_t element(int from, int to, std::size_t i) {
    return static_cast<std::int32_t>(i) * 7 + from * 1000 + to * 100'000;
}

Ints message(int from, int to, std::size_t count) {
    Ints values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = element(from, to, i);
    return values;
}

bool right(const std::int32_t* got, int from, int to, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        if (got[i] != element(from, to, i)) return false;
    }
    return true;
}

/// `count` integers in the arena, or outside.
struct Place {
    Place(ProcessGroup& group, std::size_t count, bool in_arena) : own(in_arena ? 0 : count) {
        data = in_arena ? static_cast<std::int32_t*>(group.arena().allocate(count * sizeof(std::int32_t))) : own.data();
        view = {data, count, DType::I32};
    }
    Ints own;
    std::int32_t* data;
    Buffer view;
};

/// Sends from every rank to every rank, itself included, in one batch.
bool exchange_all(Context& context, std::size_t count, bool sender_in_arena, bool receiver_in_arena) {
    ProcessGroup& world = context.world();
    std::vector<Place> sent;
    std::vector<Place> received;
    sent.reserve(static_cast<std::size_t>(world.size()));
    received.reserve(static_cast<std::size_t>(world.size()));
    TransferBatch batch = world.batch();
    for (int peer = 0; peer < world.size(); ++peer) {
        const Ints values = message(world.rank(), peer, count);
        std::copy_n(values.data(), count, sent.emplace_back(world, count, sender_in_arena).data);
        received.emplace_back(world, count, receiver_in_arena);
        batch.send(sent.back().view, peer, 3).recv(received.back().view, peer, 3);
    }
    batch.start().wait();
    for (int peer = 0; peer < world.size(); ++peer) {
        if (!right(received[static_cast<std::size_t>(peer)].data, peer, world.rank(), count)) return false;
    }
    return true;
}

constexpr std::size_t kEager = ProcessGroup::kEagerBytes / sizeof(std::int32_t);

}  // namespace

TEST_CASE("every rank sends to every rank: all counts, both kinds of memory", "[p2p][unit]") {
    const auto shape = GENERATE(
        values<std::vector<int>>({{1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}, {1, 1}, {2, 2}, {3, 1, 2}, {1, 4, 4}}));
    const bool sender = GENERATE(true, false);
    const bool receiver = GENERATE(true, false);
    CAPTURE(shape, sender, receiver);
    const auto results = run_ranks({.ranks_per_node = shape}, [&](Context& context) {
        std::string wrong;
        for (const std::size_t count :
             {std::size_t{0}, std::size_t{1}, std::size_t{333}, kEager, kEager + 1, std::size_t{100'003}}) {
            if (!exchange_all(context, count, sender, receiver)) wrong += std::to_string(count) + " ";
        }
        return wrong;
    });
    for (const auto& wrong : results) CHECK(wrong == "");
}

TEST_CASE("large messages arrive whole, while collectives run beside them", "[p2p][unit]") {
    const bool sender = GENERATE(true, false);
    const bool receiver = GENERATE(true, false);
    const auto shape = GENERATE(values<std::vector<int>>({{2}, {1, 1}}));
    const auto results = run_ranks({.ranks_per_node = shape}, [&](Context& context) {
        ProcessGroup& world = context.world();
        constexpr std::size_t kCount = 3'000'001;
        const int other = 1 - world.rank();
        Place out(world, kCount, sender);
        Place in(world, kCount, receiver);
        for (std::size_t i = 0; i < kCount; ++i) out.data[i] = element(world.rank(), other, i);
        Work received = world.recv(in.view, other);
        Work sent = world.send(out.view, other);
        float sum = 1;
        for (int i = 0; i < 20; ++i) world.all_reduce(sum, ReduceOp::Max).wait();
        received.wait();
        sent.wait();
        return right(in.data, other, world.rank(), kCount);
    });
    CHECK(results == std::vector<bool>{true, true});
}

TEST_CASE("messages of one tag arrive in order, those of other tags when they are asked for", "[p2p][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{2}, {1, 1}}));
    const std::size_t count = GENERATE(std::size_t{1}, kEager + 1);
    const auto results = run_ranks({.ranks_per_node = shape}, [&](Context& context) {
        ProcessGroup& world = context.world();
        std::vector<Ints> messages;
        std::vector<Work> works;
        constexpr int kMessages = 30;
        for (int i = 0; i < kMessages; ++i) messages.emplace_back(count, world.rank() == 0 ? i : -1);
        std::string order;
        if (world.rank() == 0) {
            for (int i = 0; i < kMessages; ++i)
                works.push_back(world.send(Buffer(std::span(messages[static_cast<std::size_t>(i)])), 1, i % 3));
            for (Work& work : works) work.wait();
        } else {
            for (const int tag : {2, 0, 1}) {
                for (int i = 0; i < kMessages / 3; ++i) {
                    Ints& values = messages[static_cast<std::size_t>(i)];
                    world.recv(values, 0, tag).wait();
                    if (values != Ints(count, 3 * i + tag)) order += "wrong ";
                }
            }
        }
        return order;
    });
    CHECK(results[1] == "");
}

TEST_CASE("small sends need no receive, up to the window, then they wait for it", "[p2p][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{2}, {1, 1}}));
    const auto results = run_ranks({.ranks_per_node = shape}, [&](Context& context) {
        ProcessGroup& world = context.world();
        std::vector<std::int32_t> value(kEager, 5);
        const Buffer all = Buffer(value);
        constexpr std::size_t kFree = ProcessGroup::kEagerWindow / ProcessGroup::kEagerBytes - 1;
        std::string text;
        if (world.rank() == 0) {
            std::vector<Work> works;
            for (std::size_t i = 0; i < kFree + 5; ++i) works.push_back(world.send(all, 1));
            for (std::size_t i = 0; i < kFree; ++i) works[i].wait();
            text = works.back().done() ? "stored without bound" : "waits";
            context.store().set("sent", "yes");
            for (Work& work : works) work.wait();
        } else {
            (void)context.store().get("sent", std::chrono::seconds(20));
            for (std::size_t i = 0; i < kFree + 5; ++i) world.recv(all, 0).wait();
        }
        // Once more, now that all have been received: half of the window is free.
        constexpr std::size_t kAgain = ProcessGroup::kEagerWindow / ProcessGroup::kEagerBytes / 2 - 1;
        if (world.rank() == 0) {
            for (std::size_t i = 0; i < kAgain; ++i) world.send(all, 1).wait();
        }
        world.barrier().wait();
        if (world.rank() == 1) {
            for (std::size_t i = 0; i < kAgain; ++i) world.recv(all, 0).wait();
        }
        return text;
    });
    CHECK(results[0] == "waits");
}

TEST_CASE("a rank that waits in recv does not stop its collectives, nor the other way round", "[p2p][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{2}, {1, 1}}));
    const std::size_t count = GENERATE(std::size_t{1}, std::size_t{100'000});
    const auto results = run_ranks({.ranks_per_node = shape}, [&](Context& context) {
        ProcessGroup& world = context.world();
        std::vector<float> sums(count, 1);
        std::vector<float> sent(count, 2);
        const Buffer reduced = Buffer(sums);
        const Buffer message = Buffer(sent);
        if (world.rank() == 0) {
            Work earlier = world.all_reduce(reduced, ReduceOp::Sum);
            world.recv(message, 1).wait();  // which rank 1 sends when the all_reduce is over
            earlier.wait();
            Work sending = world.send(message, 1, 1);
            world.all_reduce(reduced, ReduceOp::Sum).wait();  // which rank 1 calls when it has received
            sending.wait();
        } else {
            world.all_reduce(reduced, ReduceOp::Sum).wait();
            world.send(message, 0).wait();
            world.recv(message, 0, 1).wait();
            world.all_reduce(reduced, ReduceOp::Sum).wait();
        }
        return sums.back();
    });
    CHECK(results == std::vector<float>{4, 4});
}

TEST_CASE("a group of a group has messages of its own", "[p2p][unit]") {
    const auto results = run_ranks({.ranks_per_node = {3}}, [](Context& context) {
        const auto pair = context.world().split(context.rank() == 0 ? 0 : 1, -context.rank(), "pair");
        if (context.rank() == 0) return 0;
        std::int64_t got = 0;
        std::int64_t mine = context.rank();  // rank 2 is rank 0 of the pair
        std::int64_t outer = 10 * context.rank();
        std::int64_t outer_got = 0;
        const int other = 1 - pair->rank();
        Work a = context.world().send(outer, 3 - context.rank());
        Work b = pair->send(mine, other);
        pair->recv(got, other).wait();
        context.world().recv(outer_got, 3 - context.rank()).wait();
        a.wait();
        b.wait();
        return static_cast<int>(outer_got + got);
    });
    CHECK(results == std::vector<int>{0, 22, 11});
}

TEST_CASE("between any two ranks of a node there is room for a small message", "[p2p][unit]") {
    std::vector<std::byte> area(sizeof(detail::PostPage));
    for (const int ranks : {1, 2, 3, 8, 16, 64, 128, 255, 500}) {
        CAPTURE(ranks);
        const auto last = detail::ring_at(area.data(), detail::kPostBytes, ranks, ranks - 1);
        CHECK(last.capacity >= ProcessGroup::kEagerBytes + 4 * sizeof(detail::Frame));
        CHECK(last.bytes + last.capacity <= area.data() + detail::kPostBytes);
    }
}

TEST_CASE("wrong transfers are refused at the call, and cost no number", "[p2p][unit]") {
    const LocalWorld alone;
    Context context(alone.environment(0), detail::make_local_store(), alone.options());
    ProcessGroup& world = context.world();
    std::vector<float> values(4, 2);
    std::vector<float> other(4);
    const Buffer good = Buffer(values);
    const auto refusal = [](auto call) -> std::string {
        try {
            call();
        } catch (const Error& error) {
            return (error.code() == ErrorCode::InvalidArgument ? "" : "wrong code: ") + std::string(error.what());
        }
        return "accepted";
    };
    CHECK_THAT(refusal([&] { (void)world.send(good, 1); }),
               Catch::StartsWith("group 'world': rank 0 (host ") &&
                   Catch::EndsWith("): p2p #1 send f32[4] to rank 1, tag 0: there is no rank 1 in a group of 1"));
    CHECK_THAT(refusal([&] { (void)world.recv(good, -1, 2); }), Catch::Contains("recv f32[4] from rank -1, tag 2"));
    CHECK_THAT(refusal([&] { (void)world.recv(good, 0, -2); }), Catch::Contains("tags are not negative"));
    CHECK_THAT(refusal([&] { (void)world.send({nullptr, 3, DType::F32}, 0); }), Catch::Contains("the buffer is null"));
    CHECK_THAT(refusal([&] { (void)world.send(good, 0, 0, {.timeout = std::chrono::milliseconds(-1)}); }),
               Catch::Contains("OpOptions::timeout is -1 ms"));
    CHECK_THAT(
        refusal([&] { (void)world.batch().recv(good, 0).send(Buffer(std::span(values).subspan(2)), 0).start(); }),
        Catch::Contains("recv f32[4] from rank 0, tag 0: its buffer overlaps that of p2p #1 send f32[2]"));
    CHECK(world.batch().start().done());

    TransferBatch first = world.batch();
    first.recv(other, 0);
    TransferBatch second = std::move(first);
    CHECK(first.start().done());  // NOLINT: empty, as it was moved from
    Work work = second.send(good, 0).send(good, 0).start();
    CHECK(work.seq() == 1);
    world.recv(other, 0).wait();
    work.wait();
    CHECK(other == values);
}
