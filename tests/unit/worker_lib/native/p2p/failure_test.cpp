// Sends and receives that fail: every rank reports it in time, with the right culprit.

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "tests/unit/worker_lib/support/no_descriptors.hpp"
#include "tests/unit/worker_lib/support/world_errors.hpp"
#include "worker_lib/src/native/net/sockets.hpp"
#include "worker_lib/src/native/p2p/network.hpp"

using namespace ddp;
using namespace ddp::testing;
using std::chrono::milliseconds;

namespace {

using Clock = std::chrono::steady_clock;
using Shape = std::vector<int>;

constexpr std::size_t kLarge = 1'000'000;

}  // namespace

TEST_CASE("a send and a receive that differ are refused, naming both sides", "[p2p][unit]") {
    const auto shape = GENERATE(values<Shape>({{2}, {1, 1}}));
    const bool large = GENERATE(false, true);
    const bool count_differs = GENERATE(false, true);
    Gate gate(2);
    const auto errors = errors_of({.ranks_per_node = shape}, behind(gate, [&](Context& context) {
                                      std::vector<float> floats(kLarge);
                                      std::vector<std::int32_t> integers(kLarge);
                                      const std::size_t count = large ? kLarge : 10;
                                      ProcessGroup& world = context.world();
                                      const auto first = Buffer(std::span(floats).first(count));
                                      if (context.rank() == 0) {
                                          world.send(first, 1, 5, {.label = "border"}).wait();
                                          world.barrier().wait();
                                      } else {
                                          const auto other = count_differs ? Buffer(std::span(floats).first(count - 1))
                                                                           : Buffer(std::span(integers).first(count));
                                          world.recv(other, 0, 5).wait();
                                      }
                                  }));
    for (const auto& error : errors) {
        REQUIRE(error);
        INFO(error->what());
        CHECK(error->code() == ErrorCode::Mismatch);
        CHECK(error->culprits().empty());
        const std::string size = std::to_string(large ? kLarge : 10);
        CHECK_THAT(error->what(), Catch::Contains(named(0)) && Catch::Contains(named(1)));
        CHECK_THAT(error->what(),
                   Catch::Contains("): p2p #1 send f32[" + size + "] to rank 1, tag 5 'border'") &&
                       Catch::Contains(count_differs ? "): p2p #1 recv f32[" : "): p2p #1 recv i32[" + size + "]"));
    }
}

TEST_CASE("at its deadline a receive names the silent sender, and a large send its receiver", "[p2p][unit]") {
    const auto shape = GENERATE(values<Shape>({{3}, {1, 2}, {1, 1, 1}}));
    const bool sends = GENERATE(false, true);
    Gate gate(3);
    const auto began = Clock::now();
    const auto errors = errors_of({.ranks_per_node = shape}, behind(gate, [&](Context& context) {
                                      if (context.rank() != 0) return;
                                      std::vector<float> values(kLarge);
                                      const Buffer all = Buffer(values);
                                      const OpOptions options{.timeout = milliseconds(300), .label = "halo"};
                                      TransferBatch batch = context.world().batch();
                                      sends ? batch.send(all, 2, 7) : batch.recv(all, 2, 7);
                                      batch.start(options).wait();
                                  }));
    CHECK(Clock::now() - began < std::chrono::seconds(15));
    REQUIRE(errors[0]);
    INFO(errors[0]->what());
    CHECK(errors[0]->code() == ErrorCode::Timeout);
    CHECK_THAT(errors[0]->operation(), Catch::StartsWith("p2p #1 "));
    CHECK(errors[0]->culprits() == Culprits{2});
    CHECK_THAT(errors[0]->what(),
               Catch::Contains("group 'world': rank 0 waited until its deadline for " + named(2)) &&
                   Catch::Contains(") in p2p #1 " + std::string(sends ? "send" : "recv") + " f32[1000000]") &&
                   Catch::Contains("tag 7 'halo'"));
}

TEST_CASE("in a chain of receives the silent rank is named, not one that waits itself", "[p2p][unit]") {
    const auto shape = GENERATE(values<Shape>({{3}, {1, 1, 1}, {1, 2}, {2, 1}}));
    Gate gate(3);
    const auto errors = errors_of({.ranks_per_node = shape}, behind(gate, [](Context& context) {
                                      if (context.rank() == 2) return;
                                      float value = 0;
                                      const auto timeout = milliseconds(context.rank() == 0 ? 1500 : 1600);
                                      context.world().recv(value, context.rank() + 1, 0, {.timeout = timeout}).wait();
                                  }));
    for (const std::size_t rank : {0, 1}) {
        REQUIRE(errors[rank]);
        INFO(errors[rank]->what());
        CHECK(errors[rank]->code() == ErrorCode::Timeout);
        CHECK(errors[rank]->culprits() == Culprits{2});
    }
}

TEST_CASE("a rank in a collective and one in a receive both name the silent rank", "[p2p][unit]") {
    const bool first_receives = GENERATE(true, false);
    Gate gate(3);
    const auto errors = errors_of({.ranks_per_node = {3}}, behind(gate, [&](Context& context) {
                                      if (context.rank() == 2) return;
                                      float value = 0;
                                      const OpOptions options{.timeout = milliseconds(800)};
                                      if ((context.rank() == 0) == first_receives) {
                                          const int source = first_receives ? 1 : 2;
                                          context.world().recv(value, source, 0, options).wait();
                                      } else {
                                          context.world().all_reduce(value, ReduceOp::Sum, options).wait();
                                      }
                                  }));
    for (const std::size_t rank : {0, 1}) {
        REQUIRE(errors[rank]);
        INFO(errors[rank]->what());
        CHECK(errors[rank]->code() == ErrorCode::Timeout);
        CHECK(errors[rank]->culprits() == Culprits{2});
    }
}

TEST_CASE("ranks of other nodes that connect at the same time are accepted, beside strangers", "[p2p][unit]") {
    constexpr int kPeers = 100;
    int port = 0;
    auto listener = detail::listen_tcp("127.0.0.1", port);
    REQUIRE(listener.has_value());
    std::vector<ddprun::UniqueFd> sockets;
    std::vector<detail::Hello> hellos;
    detail::GroupSpec spec;
    const std::vector<detail::Member> members(1);
    for (int rank = 0; rank < 2 * kPeers; ++rank) {
        auto socket = detail::connect_tcp("127.0.0.1", port, ddprun::Clock::now() + std::chrono::seconds(10));
        REQUIRE(socket.has_value());
        spec.rank = rank / 2;
        const detail::Hello& hello = hellos.emplace_back(detail::GroupKey(spec, members).hello());
        const auto deadline = ddprun::Clock::now() + std::chrono::seconds(10);
        if (rank % 2 == 0) {
            REQUIRE(detail::send_all(socket->get(), std::as_bytes(std::span(&hello, 1)), -1, deadline).has_value());
        }
        sockets.push_back(std::move(*socket));
    }
    const detail::ReadySet ready;
    spec.rank = kPeers;
    const detail::GroupKey key(spec, members);
    detail::SocketAcceptor acceptor(ready, key, kPeers, std::move(*listener));
    std::vector<int> entered;
    const auto enter = [&](int rank, const ddprun::UniqueFd&) { entered.push_back(rank); };
    acceptor.look(enter);
    CHECK(entered.empty());  // their Hello alone may be a replayed one
    for (std::size_t i = 0; i < sockets.size(); i += 2) {
        detail::Hello answer;
        ddprun::UniqueFd none;
        const auto deadline = ddprun::Clock::now() + std::chrono::seconds(10);
        REQUIRE(detail::receive_all(sockets[i].get(), std::as_writable_bytes(std::span(&answer, 1)), none, deadline)
                    .has_value());
        CHECK(key.is_answer(hellos[i], answer));
        const ddprun::Mac proof = key.proof(hellos[i], answer);
        REQUIRE(detail::send_all(sockets[i].get(), std::as_bytes(std::span(proof)), -1, deadline).has_value());
    }
    acceptor.look(enter);
    std::ranges::sort(entered);
    CHECK(std::ssize(entered) == kPeers);
    CHECK(std::ranges::adjacent_find(entered) == entered.end());
}

TEST_CASE("a lack of descriptors costs no peer its connection that has sent the right Hello", "[p2p][unit]") {
    int port = 0;
    auto listener = detail::listen_tcp("127.0.0.1", port);
    REQUIRE(listener.has_value());
    const auto soon = [] { return ddprun::Clock::now() + std::chrono::seconds(10); };
    const std::vector<detail::Member> members(1);
    const auto key_of = [&members](int rank) {
        detail::GroupSpec spec;
        spec.rank = rank;
        return detail::GroupKey(spec, members);
    };
    const detail::ReadySet ready;
    detail::SocketAcceptor acceptor(ready, key_of(0), 3, std::move(*listener));
    std::vector<int> entered;
    std::vector<ddprun::UniqueFd> attached;
    const auto enter = [&](int rank, ddprun::UniqueFd socket) {
        entered.push_back(rank);
        attached.push_back(std::move(socket));
    };
    const auto greet = [&](int rank) {
        const detail::Hello hello = key_of(rank).hello();
        auto socket = detail::connect_tcp("127.0.0.1", port, soon());
        REQUIRE(socket.has_value());
        REQUIRE(detail::send_all(socket->get(), std::as_bytes(std::span(&hello, 1)), -1, soon()).has_value());
        return std::pair(std::move(*socket), hello);
    };
    const auto [first, hello] = greet(1);
    acceptor.look(enter);
    const auto [second, second_hello] = greet(2);
    {
        const NoDescriptorsLeft none;
        acceptor.look(enter);
    }
    detail::Hello answer;
    ddprun::UniqueFd passed;
    const auto received =
        detail::receive_all(first.get(), std::as_writable_bytes(std::span(&answer, 1)), passed, soon());
    REQUIRE(received.has_value());
    const ddprun::Mac proof = key_of(1).proof(hello, answer);
    REQUIRE(detail::send_all(first.get(), std::as_bytes(std::span(proof)), -1, soon()).has_value());
    acceptor.look(enter);
    CHECK(entered == std::vector{1});
    const detail::Hello of_second = second_hello;
    REQUIRE(
        detail::receive_all(second.get(), std::as_writable_bytes(std::span(&answer, 1)), passed, soon()).has_value());
    CHECK(key_of(2).is_answer(of_second, answer));
}

TEST_CASE("a receive fails at once when its sender leaves, but earlier messages arrive", "[p2p][unit]") {
    const auto shape = GENERATE(values<Shape>({{2}, {1, 1}}));
    const auto began = Clock::now();
    float got = 0;
    const auto results = errors_of({.ranks_per_node = shape}, [&](Context& context) {
        float value = 3;
        context.world().barrier().wait();
        if (context.rank() == 1) return context.world().send(value, 0, 1).wait();
        // In this order: the group ends as soon as a receive waits for a message that can never arrive.
        Work comes = context.world().recv(got, 1, 1);
        Work never = context.world().recv(value, 1, 2);
        comes.wait();
        never.wait();
    });
    CHECK(Clock::now() - began < std::chrono::seconds(15));
    CHECK(got == 3);
    CHECK_FALSE(results[1]);
    REQUIRE(results[0]);
    INFO(results[0]->what());
    CHECK(results[0]->code() == ErrorCode::PeerLost);
    CHECK(results[0]->culprits() == Culprits{1});
    CHECK_THAT(results[0]->what(), Catch::Contains("rank 0 cannot finish p2p #2 recv f32[1] from rank 1, tag 2") &&
                                       Catch::Contains("rank 1 (host") && Catch::Contains("has left the group"));
}

TEST_CASE("abort ends sends and receives on all ranks, and a failed transfer the collectives", "[p2p][unit]") {
    const auto shape = GENERATE(values<Shape>({{3}, {1, 2}, {1, 1, 1}}));
    const bool aborts = GENERATE(true, false);
    Gate gate(3);
    const auto began = Clock::now();
    const auto errors = errors_of({.ranks_per_node = shape}, behind(gate, [&](Context& context) {
                                      std::vector<float> values(kLarge);
                                      const Buffer all = Buffer(values);
                                      ProcessGroup& world = context.world();
                                      if (context.rank() == 1 && aborts) return world.abort("loss is NaN");
                                      if (context.rank() == 1) {
                                          world.recv(all, 0, 9, {.timeout = milliseconds(200)}).wait();
                                      } else if (context.rank() == 0) {
                                          world.send(all, 2).wait();
                                      } else {
                                          world.all_reduce(all, ReduceOp::Sum).wait();
                                      }
                                  }));
    CHECK(Clock::now() - began < std::chrono::seconds(15));
    for (const std::size_t rank : {0, 2}) {
        REQUIRE(errors[rank]);
        INFO(errors[rank]->what());
        CHECK(errors[rank]->code() == (aborts ? ErrorCode::Aborted : ErrorCode::Timeout));
        CHECK_THAT(errors[rank]->what(), Catch::Contains(aborts ? "aborted by rank 1 (host "
                                                                : "in p2p #1 recv f32[1000000] from rank 0, tag 9"));
    }
}

TEST_CASE("after a failure sends and receives fail the same way", "[p2p][unit]") {
    Gate gate(2);
    const auto errors = errors_of({.ranks_per_node = {2}}, behind(gate, [](Context& context) {
                                      if (context.rank() == 1) return;
                                      float value = 0;
                                      try {
                                          context.world().barrier({.timeout = milliseconds(100)}).wait();
                                      } catch (const Error&) {
                                          context.world().send(value, 1).wait();
                                      }
                                  }));
    REQUIRE(errors[0]);
    INFO(errors[0]->what());
    CHECK(errors[0]->code() == ErrorCode::Timeout);
    CHECK_THAT(errors[0]->what(),
               Catch::Contains("p2p #1 send f32[1] to rank 1, tag 0") && Catch::Contains("#1 barrier"));
}

TEST_CASE("destroying a group fails its transfers in flight, and does not wait for peers", "[p2p][unit]") {
    Gate gate(2);
    const auto errors = errors_of({.ranks_per_node = {2}}, behind(gate, [](Context& context) {
                                      auto group = context.world().split(0, 0, "short-lived");
                                      if (context.rank() == 1) return;
                                      float value = 0;
                                      Work work = group->recv(value, 1);
                                      group.reset();
                                      if (work.done()) work.wait();
                                  }));
    REQUIRE(errors[0]);
    CHECK(errors[0]->code() == ErrorCode::Aborted);
}

TEST_CASE("a rank that leaves with transfers in flight is reported as any other that leaves", "[p2p][unit]") {
    const auto shape = GENERATE(values<Shape>({{2}, {1, 1}}));
    Gate gate(2);
    const auto errors = errors_of({.ranks_per_node = shape}, behind(gate, [](Context& context) {
                                      auto group = context.world().split(0, 0, "short-lived");
                                      std::vector<float> values(kLarge);
                                      const Buffer all = Buffer(values);
                                      float value = 0;
                                      if (context.rank() == 1) {
                                          Work sent = group->send(all, 0, 3);
                                          group->recv(value, 0).wait();
                                          group.reset();
                                          return;
                                      }
                                      group->send(value, 1).wait();
                                      group->recv(all, 1, 4).wait();
                                  }));
    REQUIRE(errors[0]);
    INFO(errors[0]->what());
    CHECK(errors[0]->code() == ErrorCode::PeerLost);
    CHECK(errors[0]->culprits() == Culprits{1});
    CHECK_THAT(errors[0]->what(), Catch::Contains("has left the group normally"));
    CHECK_FALSE(errors[1]);
}

TEST_CASE("a failure reported by another node is passed on with its text", "[p2p][unit]") {
    Gate gate(3);
    const auto errors = errors_of({.ranks_per_node = {2, 1}}, behind(gate, [](Context& context) {
                                      std::vector<float> values(kLarge);
                                      const Buffer all = Buffer(values);
                                      ProcessGroup& world = context.world();
                                      if (context.rank() == 2) {
                                          world.recv(all, 0, 9, {.timeout = milliseconds(300)}).wait();
                                      } else if (context.rank() == 1) {
                                          world.recv(all, 0).wait();
                                      } else {
                                          world.send(all, 2).wait();
                                      }
                                  }));
    for (const auto& error : errors) {
        REQUIRE(error);
        INFO(error->what());
        CHECK(error->code() == ErrorCode::Timeout);
        CHECK(error->culprits() == Culprits{0});
        const std::string text = error->what();
        CHECK_THAT(text, Catch::Contains("rank 2 waited until its deadline for rank 0"));
        CHECK(text.find("reported: ") == text.rfind("reported: "));  // not once for each rank that passed it on
    }
}
