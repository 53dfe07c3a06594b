// Contexts that are made again: after one that failed, and in a world of another size over the same store.

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/local_world.hpp"

using namespace ddp;
using namespace ddp::testing;
using std::chrono::milliseconds;

namespace {

/// What a rank's Context comes to: the sum of all ranks, or why there is none.
std::string start(const LocalWorld& world, const std::shared_ptr<Store>& store, int rank) {
    try {
        Context context(world.environment(rank), store, world.options());
        int sum = rank;
        context.world().all_reduce(buffer(sum), ReduceOp::Sum).wait();
        return std::to_string(sum);
    } catch (const Error& error) {
        return (error.code() == ErrorCode::Timeout ? "late: " : "failed: ") + std::string(error.what());
    }
}

std::future<std::string> begin(const LocalWorld& world, const std::shared_ptr<Store>& store, int rank) {
    return std::async(std::launch::async, [=] { return start(world, store, rank); });
}

std::vector<std::string> start_all(const LocalWorld& world, const std::shared_ptr<Store>& store) {
    std::vector<std::future<std::string>> ranks;
    for (int rank = 0; rank < world.size(); ++rank) ranks.push_back(begin(world, store, rank));
    std::vector<std::string> words;
    for (auto& rank : ranks) words.push_back(rank.get());
    return words;
}

}  // namespace

TEST_CASE("a rank that comes when another has just given up meets it when both try again", "[context][unit]") {
    const std::vector<int> shape = GENERATE(values<std::vector<int>>({{2}, {1, 1}}));
    const std::shared_ptr<Store> store = detail::make_local_store();
    const LocalWorld hasty{.ranks_per_node = shape, .init_timeout = milliseconds(1'500)};
    for (int round = 0; round < 2; ++round) {
        CHECK_THAT(start(hasty, store, 0), Catch::StartsWith("late: "));
        CHECK_THAT(start(hasty, store, 1), Catch::StartsWith("failed: "));  // what rank 0 said is there, and nobody
    }
    const LocalWorld patient{.ranks_per_node = shape};
    auto first = begin(patient, store, 0);
    std::string second;
    do {  // until rank 0 has said where it is now
        second = start(patient, store, 1);
    } while (second.starts_with("failed: ") && first.wait_for(milliseconds(1)) != std::future_status::ready);
    CHECK(first.get() == "1");
    CHECK(second == "1");
}

TEST_CASE("a rank whose Context failed while the others' did not meets them at their next one", "[context][unit]") {
    const LocalWorld world{.ranks_per_node = {1, 1}};
    const std::shared_ptr<Store> store = detail::make_local_store();
    CHECK(start_all(world, store) == std::vector<std::string>{"1", "1"});
    store->add("ddp/0/of-2/inits/1", -1);  // as rank 1 does when its one fails
    auto first = begin(world, store, 0);
    (void)store->get("ddp/0/of-2/init-2/world/member/0", milliseconds(20'000));
    CHECK(start(world, store, 1) == "1");
    CHECK(first.get() == "1");
}

TEST_CASE("worlds of other sizes follow each other over one store, though some ranks are new", "[context][unit]") {
    const std::shared_ptr<Store> store = detail::make_local_store();
    for (const int size : {2, 3, 2, 4}) {
        const LocalWorld world{.ranks_per_node = {1, size - 1}, .init_timeout = milliseconds(5'000)};
        const std::string sum = std::to_string(size * (size - 1) / 2);
        CHECK(start_all(world, store) == std::vector<std::string>(static_cast<std::size_t>(size), sum));
    }
}
