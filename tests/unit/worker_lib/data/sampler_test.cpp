#include <algorithm>
#include <numeric>

#include "ddp/error.hpp"
#include "ddp/sampler.hpp"
#include "tests/catch.hpp"
#include "worker_lib/src/data/permutation.hpp"

using ddp::DistributedSampler;
using Indices = std::vector<std::int64_t>;

namespace {

std::vector<Indices> all_ranks(std::size_t n, int replicas, std::uint64_t seed, std::uint64_t epoch, bool drop_last) {
    std::vector<Indices> result;
    for (int rank = 0; rank < replicas; ++rank) {
        DistributedSampler sampler(n, replicas, rank, {.seed = seed, .drop_last = drop_last});
        sampler.set_epoch(epoch);
        result.push_back(sampler.indices());
        CHECK(result.back().size() == sampler.size());
    }
    return result;
}

}  // namespace

// The expected values were printed by torch.utils.data.distributed.DistributedSampler of PyTorch 1.13.
TEST_CASE("every rank sees what PyTorch's sampler gives it", "[sampler]") {
    using Ranks = std::vector<Indices>;
    CHECK(all_ranks(10, 3, 0, 0, false) == Ranks{{4, 5, 0, 2}, {1, 3, 8, 4}, {7, 9, 6, 1}});
    CHECK(all_ranks(10, 3, 0, 0, true) == Ranks{{4, 5, 0}, {1, 3, 8}, {7, 9, 6}});
    CHECK(all_ranks(10, 3, 0, 1, false) == Ranks{{5, 2, 9, 4}, {6, 0, 3, 5}, {1, 8, 7, 6}});
    CHECK(all_ranks(1, 3, 1, 1, false) == Ranks{{0}, {0}, {0}});
}

TEST_CASE("fewer samples than ranks repeat, or are dropped", "[sampler]") {
    CHECK(all_ranks(2, 5, 7, 0, false) == std::vector<Indices>{{1}, {0}, {1}, {0}, {1}});
    CHECK(all_ranks(2, 5, 7, 0, true) == std::vector<Indices>(5));
}

TEST_CASE("only the low 32 bits of seed + epoch count, as in PyTorch", "[sampler]") {
    CHECK(all_ranks(23, 4, 123456789012, 5, false) ==
          std::vector<Indices>{
              {17, 11, 6, 22, 21, 12}, {9, 3, 4, 20, 15, 1}, {10, 8, 13, 2, 19, 14}, {0, 5, 18, 16, 7, 17}});
    CHECK(all_ranks(23, 4, (1ull << 32) + 1, 1ull << 33, true) ==
          std::vector<Indices>{{9, 22, 1, 16, 8}, {4, 6, 19, 7, 10}, {20, 13, 3, 18, 17}, {11, 12, 2, 0, 15}});
}

TEST_CASE("without shuffling the samples are dealt in order", "[sampler]") {
    CHECK(DistributedSampler(5, 2, 0, {.shuffle = false}).indices() == Indices{0, 2, 4});
    CHECK(DistributedSampler(5, 2, 1, {.shuffle = false}).indices() == Indices{1, 3, 0});
}

TEST_CASE("padding is exactly what a rank sees a second time", "[sampler]") {
    const DistributedSampler last(10, 3, 2, {.shuffle = false});
    REQUIRE(last.size() == 4);
    CHECK_FALSE(last.is_padding(2));
    CHECK(last.is_padding(3));
    CHECK_FALSE(DistributedSampler(10, 3, 0, {.shuffle = false}).is_padding(3));
    CHECK_THROWS_AS(last.is_padding(4), ddp::Error);
}

TEST_CASE("an epoch goes on with another number of ranks, and each sample counts once", "[sampler]") {
    const bool shuffle = GENERATE(true, false);
    constexpr std::size_t kSamples = 1003;
    std::vector<int> seen(kSamples, 0);
    std::size_t consumed = 0;
    for (const auto& [replicas, steps] :
         std::vector<std::pair<int, std::size_t>>{{4, 60}, {3, 101}, {1, 7}, {4, 5}, {4, 0}}) {
        const std::size_t before = consumed;
        for (int rank = 0; rank < replicas; ++rank) {
            DistributedSampler sampler(kSamples, replicas, rank, {.shuffle = shuffle, .seed = 3});
            sampler.set_epoch(2);
            sampler.resume_from(before);
            const Indices mine = sampler.indices();
            CHECK(mine.size() == sampler.size());
            const std::size_t taken = steps == 0 ? mine.size() : steps;  // 0: to the end of the epoch
            for (std::size_t i = 0; i < taken; ++i) {
                if (sampler.is_padding(i)) continue;
                ++seen[static_cast<std::size_t>(mine[i])];
                ++consumed;
            }
        }
    }
    CHECK(seen == std::vector<int>(kSamples, 1));
    CHECK(consumed == kSamples);
}

TEST_CASE("with as many ranks as before, each goes on with its own samples", "[sampler]") {
    for (int rank = 0; rank < 3; ++rank) {
        DistributedSampler sampler(100, 3, rank, {.seed = 1});
        const Indices whole = sampler.indices();
        sampler.resume_from(60);
        const Indices rest = sampler.indices();
        CHECK(rest == Indices(whole.begin() + 20, whole.end()));
        sampler.set_epoch(0);
        CHECK(sampler.indices() == whole);
    }
}

TEST_CASE("a whole epoch that was consumed leaves nothing", "[sampler]") {
    DistributedSampler sampler(10, 4, 1);
    sampler.resume_from(10);
    CHECK(sampler.size() == 0);
    CHECK(sampler.indices().empty());
    sampler.resume_from(12);  // with the repetitions that made 3 samples of each rank
    CHECK(sampler.size() == 0);
}

TEST_CASE("PyTorch's loop for very large data sets is a permutation too", "[sampler]") {
    // PyTorch 2 uses it from 214748364 samples on; its draws are 64 bits wide, the first draw is the high half.
    CHECK(ddp::detail::permutation_inside_out(10, 0) == Indices{8, 2, 6, 3, 5, 1, 0, 9, 7, 4});
    CHECK(ddp::detail::permutation_inside_out(7, (1ull << 32) + 5) == ddp::detail::permutation_inside_out(7, 5));
    Indices order = ddp::detail::permutation_inside_out(1000, 3);
    std::sort(order.begin(), order.end());
    Indices identity(1000);
    std::iota(identity.begin(), identity.end(), 0);
    CHECK(order == identity);
    CHECK(ddp::detail::kLargePermutationFrom == 214748364);
}

TEST_CASE("impossible samplers are refused with the number that is wrong", "[sampler]") {
    using Catch::Contains;
    CHECK_THROWS_WITH(DistributedSampler(0, 1, 0), Contains("n = 0"));
    CHECK_THROWS_WITH(DistributedSampler(5, 0, 0), Contains("replicas is 0"));
    CHECK_THROWS_WITH(DistributedSampler(5, 2, 2), Contains("rank 2 of 2"));
    CHECK_THROWS_WITH(DistributedSampler(5, 2, -1), Contains("rank -1 of 2"));
}
