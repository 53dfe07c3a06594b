// SharedWork: no rank waits for one that does no part, and no rank completes before all parts are done.

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <limits>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/all_reduce_cases.hpp"
#include "tests/unit/worker_lib/support/node_ranks.hpp"

using namespace ddp;
using namespace ddp::testing;
using detail::Node;
using detail::Operation;

namespace {

using Parts = std::vector<std::pair<int, std::size_t>>;  ///< owner and number of each

/// Each rank's share has two parts.
template <typename DoPart>
void share_out(Node& node, const Operation& one, DoPart do_part) {
    node.meetings.join(one);
    node.shared_work.run(one, 2, do_part);
    node.done(one);
}

/// Returns the parts that this rank did.
Parts take_part(Node& node, const Operation& one) {
    Parts done;
    share_out(node, one, [&](int owner, std::size_t part) { done.emplace_back(owner, part); });
    return done;
}

/// During its lifetime this thread, and threads that it starts, run on one core.
class OneCore {
public:
    OneCore() {
        (void)::sched_getaffinity(0, sizeof before_, &before_);
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(static_cast<std::size_t>(::sched_getcpu()), &one);
        (void)::sched_setaffinity(0, sizeof one, &one);
    }
    ~OneCore() { (void)::sched_setaffinity(0, sizeof before_, &before_); }
    OneCore(const OneCore&) = delete;
    OneCore& operator=(const OneCore&) = delete;

private:
    cpu_set_t before_{};
};

}  // namespace

TEST_CASE("each part of a share is done once, by any rank, and again in the next operation", "[native][unit]") {
    Ranks ranks(2);
    for (const std::uint64_t seq : {1, 2, 3}) {
        const Operation one = operation(seq);
        ranks.open(one);
        auto other = std::async(std::launch::async, [&] { return take_part(ranks[1], one); });
        Parts done = take_part(ranks[0], one);
        std::ranges::copy(other.get(), std::back_inserter(done));
        std::ranges::sort(done);
        CHECK(done == Parts{{0, 0}, {0, 1}, {1, 0}, {1, 1}});
    }
}

TEST_CASE("no rank waits for one that joins the shared work late, and that one finds nothing left to do",
          "[native][unit]") {
    Ranks ranks(3);
    for (const std::uint64_t seq : {1, 2}) {
        const Operation one = operation(seq);
        ranks.open(one);
        CHECK(take_part(ranks[1], one) == Parts{{1, 0}, {1, 1}, {2, 0}, {2, 1}, {0, 0}, {0, 1}});  // its own first
        CHECK(take_part(ranks[0], one).empty());
        CHECK(take_part(ranks[2], one).empty());
    }
}

TEST_CASE("a rank that finds all parts claimed waits for the ranks that do them", "[native][unit]") {
    Ranks ranks(2);
    const Operation one = operation(1);
    ranks.open(one);
    std::atomic<bool> finished{false};
    std::future<bool> other;
    share_out(ranks[0], one, [&](int owner, std::size_t part) {
        if (owner != 1 || part != 1) return;  // the last one
        other = std::async(std::launch::async, [&] {
            take_part(ranks[1], one);
            return finished.load();
        });
        while (!ranks.sleeps(1)) std::this_thread::yield();
        finished = true;
    });
    CHECK(other.get());
}

TEST_CASE("work whose parts are all done completes, even if a rank fails or leaves afterwards", "[native][unit]") {
    const bool poisoned = GENERATE(true, false);
    Ranks ranks(2);
    const Operation one = operation(1);
    ranks.open(one);
    CHECK(take_part(ranks[0], one).size() == 4);
    if (poisoned) ranks[0].failure.poison(kEnough);
    ranks[0].progress.leave(detail::Departure::kLeft);
    CHECK(failure_of([&] { CHECK(take_part(ranks[1], one).empty()); }).what() == std::string(kNone.what()));
}

TEST_CASE("no rank completes on a node that is poisoned before all parts are done", "[native][unit]") {
    const int poisoned_in = GENERATE(1, 2, 6);
    Ranks ranks(3);
    const Operation one = operation(1);
    ranks.open(one);
    int parts = 0;
    const Error failure = failure_of([&] {
        share_out(ranks[0], one, [&](int, std::size_t) {
            if (++parts == poisoned_in) ranks[1].failure.poison(kEnough);  // its memory may be overwritten from now on
        });
    });
    CHECK(parts == poisoned_in);
    CHECK(failure.code() == ErrorCode::Aborted);
    for (const int late : {1, 2}) CHECK(failure_of([&] { take_part(ranks[late], one); }).code() == ErrorCode::Aborted);
}

TEST_CASE("data of a rank that leaves while others reduce it is not part of a result", "[native][unit]") {
    Ranks ranks(3);
    const Operation one = operation(1);
    ranks.open(one);
    std::future<Error> other;
    const Error failure = failure_of([&] {
        share_out(ranks[0], one, [&](int owner, std::size_t part) {
            if (owner != 2 || part != 1) return;  // the last one
            other = std::async(std::launch::async, [&] { return failure_of([&] { take_part(ranks[2], one); }); });
            ranks[1].failure.stop(kEnough);
            ranks[1].progress.leave(detail::Departure::kLeft);
        });
    });
    ranks[0].failure.poison(detail::failure_of(failure));  // as the backend does
    CHECK(failure.code() == ErrorCode::PeerLost);
    CHECK(failure.culprits() == std::vector<int>{1});
    CHECK(other.get().culprits() == std::vector<int>{1});
}

TEST_CASE("a rank that waits for a part until its deadline names the rank that does it", "[native][unit]") {
    Ranks ranks(3);
    const Operation one = operation(1, std::chrono::milliseconds(20));
    ranks.open(one);
    std::vector<int> culprits;
    share_out(ranks[0], one, [&](int owner, std::size_t part) {
        if (owner != 2 || part != 1) return;  // the last one
        auto other = std::async(std::launch::async, [&] { return failure_of([&] { take_part(ranks[1], one); }); });
        culprits = other.get().culprits();
    });
    CHECK(culprits == std::vector<int>{0});
}

TEST_CASE("ranks that share a core get the same sum as others, bit for bit", "[native][unit]") {
    const OneCore one_core;
    const Setting setting = GENERATE(from_range(long_settings({{2}, {5}})));
    CAPTURE(setting.text());
    const std::vector<Case> cases{{DType::F32, ReduceOp::Sum, 700'001},  // several parts of a slice
                                  {DType::F64, ReduceOp::Max, 100'003},
                                  {DType::BF16, ReduceOp::Avg, 300'007},
                                  {DType::I32, ReduceOp::Sum, 4'099}};
    CHECK(run_cases(setting, cases) == "");
}

TEST_CASE("where ranks share a core and one aborts at any moment, each gets the whole sum or an error",
          "[native][unit]") {
    const OneCore one_core;
    constexpr std::size_t kCount = 200'000;
    std::mt19937 random(1);
    for (int round = 0; round < (kThorough ? 20 : 5); ++round) {
        const int looks = std::uniform_int_distribution(0, 300)(random);
        const auto outcomes = run_ranks({.ranks_per_node = {4}}, [&](Context& context) {
            auto& group = context.world();
            float* const data = static_cast<float*>(group.arena().allocate(kCount * sizeof(float)));
            int wrong = 0;
            const auto train = [&] {
                for (float step = 1;; ++step) {
                    std::fill_n(data, kCount, step);
                    group.all_reduce({data, kCount, DType::F32}, ReduceOp::Sum).wait();
                    wrong += static_cast<int>(
                        std::count_if(data, data + kCount, [&](float sum) { return sum != 4 * step; }));
                }
            };
            const auto abort_later = [&] {
                for (int i = 0; i < looks; ++i) std::this_thread::yield();
                group.abort("enough");
            };
            std::future<void> aborter;
            if (context.rank() == 2) aborter = std::async(std::launch::async, abort_later);
            try {
                train();
            } catch (const Error&) {
#if !defined(__SANITIZE_THREAD__)  // which reports this race: it is one, and no rank may use what it read
                std::fill_n(data, kCount, std::numeric_limits<float>::quiet_NaN());
#endif
            }
            return wrong;
        });
        CHECK(outcomes == std::vector<int>(4, 0));
    }
}
