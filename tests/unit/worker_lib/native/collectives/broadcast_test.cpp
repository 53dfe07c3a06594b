// Broadcast and barrier.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <numeric>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/settings.hpp"
#include "worker_lib/src/native/collectives/broadcast_stream.hpp"

using namespace ddp;
using namespace ddp::testing;

TEST_CASE("broadcast gives all ranks the root's values, for every root and every place of the buffers",
          "[native][unit]") {
    const Setting setting = GENERATE(from_range(settings({{1},
                                                          {2},
                                                          {3},
                                                          {4},
                                                          {5},
                                                          {6},
                                                          {7},
                                                          {8},
                                                          {9},
                                                          {1, 1},
                                                          {1, 1, 1},
                                                          {2, 2},
                                                          {3, 1},
                                                          {2, 3, 1},
                                                          {1, 6},
                                                          {2, 2, 2, 2},
                                                          {3, 3, 3}})));
    CAPTURE(setting.text());
    auto counts = awkward_counts(setting.size(), 1001);
    if (kThorough || setting.size() <= 6) counts.push_back(1'100'001);
    CHECK(complaints(setting, [&](Context& context, RankMemory& place) -> std::string {
              for (const std::size_t count : counts) {
                  auto* const memory = reinterpret_cast<float*>(place.allocate(count * sizeof(float)));
                  const std::span<float> values(memory, count);
                  const int step = count > 2000 ? 2 : 1;  // the big ones take time
                  for (int root = 0; root < context.world_size(); root += step) {
                      std::fill(values.begin(), values.end(), -1.0F);
                      if (context.rank() == root) std::iota(values.begin(), values.end(), static_cast<float>(root));
                      context.world().broadcast(values, root).wait();
                      for (std::size_t i = 0; i < count; ++i) {
                          if (values[i] != static_cast<float>(root) + static_cast<float>(i))
                              return fmt::format("rank {}: element {} of {} from root {} is wrong\n", context.rank(), i,
                                                 count, root);
                      }
                  }
              }
              return {};
          }) == "");
}

TEST_CASE("broadcast to many nodes uses a tree if it is small, and is handed on otherwise", "[native][unit]") {
    using detail::BroadcastAlgorithm;
    CHECK(detail::choose_broadcast(2, 0) == BroadcastAlgorithm::kDirect);
    CHECK(detail::choose_broadcast(8, 16u << 10) == BroadcastAlgorithm::kDirect);
    CHECK(detail::choose_broadcast(3, 25u << 20) == BroadcastAlgorithm::kHandOn);
    CHECK(detail::choose_broadcast(9, 8) == BroadcastAlgorithm::kTree);
    CHECK(detail::choose_broadcast(9, 1u << 20) == BroadcastAlgorithm::kHandOn);
    CHECK(detail::choose_broadcast(1000, 1u << 20) == BroadcastAlgorithm::kTree);

    const LocalWorld world{.ranks_per_node = {1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1}};
    const auto wrong = run_ranks(world, [&](Context& context) {
        int failures = 0;
        for (const std::size_t count : {0u, 1u, 5001u, 60'001u}) {
            for (int root = 0; root < context.world_size(); root += 5) {
                std::vector<int> values(count, context.rank() == root ? root + 1 : -1);
                context.world().broadcast(values, root).wait();
                failures += std::ranges::count(values, root + 1) != std::ssize(values) ? 1 : 0;
            }
        }
        return failures;
    });
    CHECK(wrong == std::vector<int>(static_cast<std::size_t>(world.size()), 0));
}

TEST_CASE("broadcast moves bytes: every type, every bit", "[native][unit]") {
    const auto results = run_ranks({.ranks_per_node = {2, 1}}, [](Context& context) {
        const float signalling_nan = std::bit_cast<float>(0x7fa00001u);
        float value = context.rank() == 2 ? signalling_nan : 0.0F;
        context.world().broadcast(value, 2).wait();
        std::int8_t byte = context.rank() == 0 ? -77 : 0;
        context.world().broadcast(byte, 0).wait();
        return std::pair(std::bit_cast<std::uint32_t>(value), byte);
    });
    for (const auto& [bits, byte] : results) {
        CHECK(bits == 0x7fa00001u);
        CHECK(byte == -77);
    }
}

TEST_CASE("no rank passes a barrier before all have arrived", "[native][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{1}, {4}, {2, 2}, {1, 1, 1}, {3, 1}}));
    const LocalWorld world{.ranks_per_node = shape};
    std::atomic<int> arrived{0};
    const auto early = run_ranks(world, [&](Context& context) {
        int failures = 0;
        for (int round = 1; round <= 50; ++round) {
            ++arrived;
            context.world().barrier().wait();
            failures += arrived.load() < round * context.world_size() ? 1 : 0;
        }
        return failures;
    });
    CHECK(early == std::vector<int>(static_cast<std::size_t>(world.size()), 0));
}
