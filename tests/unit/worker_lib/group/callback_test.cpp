// What callbacks of works may not do, and what their exceptions do.

#include <chrono>
#include <functional>
#include <future>
#include <latch>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "tests/unit/worker_lib/support/world_errors.hpp"

using namespace ddp;
using namespace ddp::testing;
using Catch::Contains;

namespace {

constexpr std::chrono::minutes kNever{5};  // no test waits for a deadline
constexpr std::chrono::seconds kSoon{60};
constexpr std::size_t kLarge = 300'000;  // elements of what no call does at once

std::string refusal_of(const std::function<void()>& call) {
    try {
        call();
    } catch (const Error& error) {
        return (error.code() == ErrorCode::InvalidArgument ? "" : "another code: ") + std::string(error.what());
    }
    return "nothing";
}

enum class Kind { kCollective, kMessage };

/// An all-reduce of rank 0 and 1, or a message from 1 to 0.
Work start(ProcessGroup& group, std::vector<float>& values, Kind kind) {
    const Buffer all = Buffer(values);
    if (kind == Kind::kCollective) return group.all_reduce(all, ReduceOp::Sum);
    return group.rank() == 0 ? group.recv(all, 1) : group.send(all, 0);
}

}  // namespace

TEST_CASE("a callback that waits for its own group is refused at once, and the group goes on", "[native][p2p][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{2}, {1, 1}}));
    const auto first = GENERATE(Kind::kCollective, Kind::kMessage);
    const auto second = GENERATE(Kind::kCollective, Kind::kMessage);
    const bool host = GENERATE(false, true);
    CAPTURE(shape, static_cast<int>(first), static_cast<int>(second), host);
    const auto began = std::chrono::steady_clock::now();
    std::latch prepared(2);
    std::latch refused(1);
    const auto texts = run_ranks({.ranks_per_node = shape, .timeout = kNever}, [&](Context& context) {
        std::vector<float> one(kLarge, 1);
        std::vector<float> two(kLarge, 1);
        if (context.rank() == 1) {
            prepared.arrive_and_wait();  // rank 0 has its callback before the work can end
            start(context.world(), one, first).wait();
            refused.wait();  // nor is the other one done when rank 0 waits for it
            start(context.world(), two, second).wait();
            context.world().barrier().wait();
            return std::string();
        }
        std::promise<std::pair<Work, std::string>> told;
        Work work = start(context.world(), one, first);
        work.then([&](const std::exception_ptr&) {
            Work next = start(context.world(), two, second);
            const std::string text = refusal_of([&] { host ? next.wait_host(std::chrono::minutes(4)) : next.wait(); });
            refused.count_down();
            work.wait();  // is done
            told.set_value({next, text});
        });
        prepared.arrive_and_wait();
        work.wait();
        auto [next, text] = told.get_future().get();
        next.wait();
        context.world().barrier().wait();
        return text;
    });
    CHECK_THAT(texts[0],
               Contains(std::string(host ? "wait_host" : "wait") + "() inside a callback of group 'world': rank 0") &&
                   Contains(second == Kind::kCollective ? "all_reduce sum f32[300000]" : "recv f32[300000]") &&
                   Contains("wait for it elsewhere"));
    CHECK(std::chrono::steady_clock::now() - began < kSoon);
}

TEST_CASE("a callback may wait for another group", "[native][unit]") {
    std::latch prepared(2);
    const auto sums = run_ranks({.ranks_per_node = {1, 1}, .timeout = kNever}, [&](Context& context) {
        std::vector<float> one(kLarge, 1);
        std::vector<float> two(kLarge, 1);
        const auto other = context.world().split(0, context.rank(), "other");
        if (context.rank() == 1) {
            prepared.arrive_and_wait();
            context.world().all_reduce(one, ReduceOp::Sum).wait();
            other->all_reduce(two, ReduceOp::Sum).wait();
            return two.back();
        }
        std::promise<std::string> told;
        Work work = context.world().all_reduce(one, ReduceOp::Sum);
        work.then([&](const std::exception_ptr&) {
            told.set_value(refusal_of([&] { other->all_reduce(two, ReduceOp::Sum).wait(); }));
        });
        prepared.arrive_and_wait();
        work.wait();
        return told.get_future().get() == "nothing" ? two.back() : -1;
    });
    CHECK(sums == std::vector<float>{2, 2});
}

TEST_CASE("what a callback throws aborts the group with its text", "[native][p2p][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{2}, {1, 1}}));
    const auto kind = GENERATE(Kind::kCollective, Kind::kMessage);
    const auto what = GENERATE(values<std::string>({"a number", "an exception", "a refusal"}));
    CAPTURE(shape, static_cast<int>(kind), what);
    const auto began = std::chrono::steady_clock::now();
    std::latch prepared(2);
    Gate gate(2);
    const auto errors = errors_of({.ranks_per_node = shape, .timeout = kNever}, behind(gate, [&](Context& context) {
                                      std::vector<float> one(kLarge, 1);
                                      std::vector<float> two(kLarge, 1);
                                      if (context.rank() == 1)
                                          prepared.arrive_and_wait();  // else the work might be done before then()
                                      Work work = start(context.world(), one, kind);
                                      if (context.rank() == 0) {
                                          work.then([&](const std::exception_ptr&) {
                                              if (what == "a number") throw 7;
                                              if (what == "an exception")
                                                  throw std::runtime_error("the parser gave up");
                                              context.world().recv(two, 1, 9).wait();  // which no rank sends
                                          });
                                      }
                                      if (context.rank() == 0) prepared.arrive_and_wait();
                                      work.wait();
                                      for (;;) context.world().all_reduce(one, ReduceOp::Sum).wait();
                                  }));
    const std::string text = what == "a number"       ? "an exception that is not derived from std::exception"
                             : what == "an exception" ? "the parser gave up"
                                                      : "wait() inside a callback of group 'world'";
    for (const auto& error : errors) {
        REQUIRE(error);
        INFO(error->what());
        CHECK(error->code() == ErrorCode::Aborted);
        CHECK(error->culprits() == std::vector<int>{0});
        CHECK_THAT(error->what(), Contains("was aborted by rank 0") && Contains("a callback of ") && Contains(text));
    }
    CHECK(std::chrono::steady_clock::now() - began < kSoon);
}

TEST_CASE("what a callback throws that is called at once is its caller's", "[native][unit]") {
    const bool large = GENERATE(false, true);  // small ones may be done without a state
    const auto texts = run_ranks({.ranks_per_node = {2}}, [&](Context& context) {
        std::vector<float> values(large ? kLarge : 1, 1);
        Work work = context.world().all_reduce(values, ReduceOp::Sum);
        work.wait();
        std::string text;
        try {
            work.then([](const std::exception_ptr&) { throw std::runtime_error("here"); });
        } catch (const std::runtime_error& error) {
            text = error.what();
        }
        context.world().barrier().wait();
        return text;
    });
    CHECK(texts == std::vector<std::string>{"here", "here"});
}

TEST_CASE("a callback that throws on the error of its work changes nothing about the error", "[native][unit]") {
    const auto errors = errors_of({.ranks_per_node = {2}, .timeout = kNever}, [&](Context& context) {
        std::vector<float> values(kLarge, 1);
        Work work = context.world().all_reduce(values, ReduceOp::Sum);
        work.then([](const std::exception_ptr& error) {
            if (error) std::rethrow_exception(error);
        });
        if (context.rank() == 1) context.world().abort("loss is NaN");
        work.wait();
        context.world().barrier().wait();
    });
    for (const auto& error : errors) {
        REQUIRE(error);
        CHECK_THAT(error->what(), Contains("aborted by rank 1") && Contains("loss is NaN") && !Contains("callback"));
    }
}

TEST_CASE("a group may be destroyed inside a callback of its own: it ends when that has returned",
          "[native][p2p][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{2}, {1, 1}}));
    const auto kind = GENERATE(Kind::kCollective, Kind::kMessage);
    const bool waits = GENERATE(false, true);  // on whose thread the callback runs
    CAPTURE(shape, static_cast<int>(kind), waits);
    const auto began = std::chrono::steady_clock::now();
    std::latch prepared(2);
    const auto texts = run_ranks({.ranks_per_node = shape, .timeout = kNever}, [&](Context& context) {
        std::vector<float> one(kLarge, 1);
        std::vector<float> two(kLarge, 1);
        auto own = context.world().split(0, context.rank(), "own");
        const auto error_of_second = [](Work second) {
            try {
                second.wait();
            } catch (const Error& error) {
                return std::string(error.what());
            }
            return std::string("none");
        };
        if (context.rank() == 1) {
            prepared.arrive_and_wait();
            start(*own, one, kind).wait();
            const std::string text = error_of_second(own->all_reduce(two, ReduceOp::Sum));
            context.world().barrier().wait();
            return text;
        }
        std::promise<Work> told;
        Work work = start(*own, one, kind);
        work.then([&](const std::exception_ptr&) {
            Work second = own->recv(two, 1, 9);  // which no rank sends
            own.reset();
            told.set_value(second);
        });
        prepared.arrive_and_wait();
        if (waits) work.wait();
        const std::string text = error_of_second(told.get_future().get());
        context.world().barrier().wait();
        return text;
    });
    CHECK_THAT(texts[0], Contains("was destroyed by rank 0"));
    CHECK_THAT(texts[1], Contains("rank 0") && Contains("own"));
    CHECK(std::chrono::steady_clock::now() - began < kSoon);
}

TEST_CASE("of a group that an exception destroys inside a callback of its own, peers hear that it was by an exception",
          "[native][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{2}, {1, 1}}));
    const bool thrown = GENERATE(false, true);
    CAPTURE(shape, thrown);
    std::latch prepared(2);
    const auto texts = run_ranks({.ranks_per_node = shape, .timeout = kNever}, [&](Context& context) {
        std::vector<float> one(kLarge, 1);
        auto own = context.world().split(0, context.rank(), "own");
        std::string text;
        if (context.rank() == 1) {
            prepared.arrive_and_wait();
            start(*own, one, Kind::kCollective).wait();
            try {
                own->barrier().wait();
            } catch (const Error& error) {
                text = error.what();
            }
        } else {
            Work work = start(*own, one, Kind::kCollective);
            work.then([&](const std::exception_ptr&) {
                try {
                    const auto last_owner = std::move(own);
                    if (thrown) throw std::runtime_error("it is caught where the callback ends");
                } catch (const std::runtime_error&) {
                }
            });
            prepared.arrive_and_wait();
            work.wait();
        }
        context.world().barrier().wait();
        return text;
    });
    CHECK_THAT(texts[1], Contains("rank 0") && Contains(thrown ? "has left the group because of an exception"
                                                               : "has left the group normally"));
}

TEST_CASE("of a group that ends with a callback which throws peers hear what was thrown", "[native][p2p][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{2}, {1, 1}}));
    const auto kind = GENERATE(Kind::kCollective, Kind::kMessage);
    const bool waits = GENERATE(false, true);  // on whose thread the callback runs
    CAPTURE(shape, static_cast<int>(kind), waits);
    std::latch prepared(2);
    const auto texts = run_ranks({.ranks_per_node = shape, .timeout = kNever}, [&](Context& context) {
        std::vector<float> one(kLarge, 1);
        auto own = context.world().split(0, context.rank(), "own");
        std::string text;
        if (context.rank() == 1) {
            prepared.arrive_and_wait();
            start(*own, one, kind).wait();
            try {
                own->recv(one, 0, 9).wait();
            } catch (const Error& error) {
                text = error.what();
            }
        } else {
            Work work = start(*own, one, kind);
            work.then([&](const std::exception_ptr&) {
                const auto last_owner = std::move(own);
                throw std::runtime_error("loss is NaN");
            });
            prepared.arrive_and_wait();
            if (waits) work.wait();
        }
        context.world().barrier().wait();
        return text;
    });
    CHECK_THAT(texts[1], Contains("rank 0") && Contains("loss is NaN"));
}

TEST_CASE("a callback that is called at once, for its work is done, may wait for its own group", "[native][unit]") {
    const auto sums = run_ranks({.ranks_per_node = {1, 1}, .timeout = kNever}, [&](Context& context) {
        std::vector<float> one(kLarge, 1);
        std::vector<float> two(kLarge, 1);
        Work work = context.world().all_reduce(one, ReduceOp::Sum);
        work.wait();
        work.then([&](const std::exception_ptr&) { context.world().all_reduce(two, ReduceOp::Sum).wait(); });
        return two.back();
    });
    CHECK(sums == std::vector<float>{2, 2});
}
