// An exception that leaves a block with a Work in flight: the buffers die with the block.

#include <chrono>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "tests/unit/worker_lib/support/world_errors.hpp"
#include "worker_lib/src/operation/work_state.hpp"

using namespace ddp;
using namespace ddp::testing;
using Catch::Contains;

namespace {

constexpr std::chrono::minutes kNeverPasses{5};  // no test waits for a deadline

using State = std::shared_ptr<detail::WorkState>;

/// Memory that notes, when it dies, whether an operation still used it.
struct Gradients {
    std::vector<float> values;
    State& user;
    bool& was_used;

    ~Gradients() { was_used = !user->done(); }
};

enum class LoneKind { kCollective, kMessage };

/// An operation of rank 0 that no other rank takes part in.
Work start_alone(ProcessGroup& group, std::vector<float>& values, LoneKind kind) {
    return kind == LoneKind::kCollective ? group.all_reduce(values, ReduceOp::Sum, {.label = "gradients"})
                                         : group.recv(values, 1, {.label = "gradients"});
}

/// Calls `last_act` in its destructor.
template <typename LastAct>
struct AtEnd {
    LastAct last_act;
    ~AtEnd() { last_act(); }
};

}  // namespace

TEST_CASE("an exception over a Work in flight frees the buffer first, keeps its text, and is reported to the peers",
          "[native][p2p][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{2}, {1, 1}}));
    const auto kind = GENERATE(LoneKind::kCollective, LoneKind::kMessage);
    const std::size_t count = GENERATE(as<std::size_t>{}, 4, 300'000);
    CAPTURE(shape, static_cast<int>(kind), count);
    const auto began = std::chrono::steady_clock::now();
    Gate gate(2);
    bool was_used = true;
    std::string caught;
    const auto errors =
        errors_of({.ranks_per_node = shape, .timeout = kNeverPasses}, behind(gate, [&](Context& context) {
                      context.world().barrier().wait();
                      if (context.rank() == 1) {
                          int message = 0;
                          return context.world().recv(message, 0, 9).wait();
                      }
                      State seen;
                      try {
                          Gradients gradients{std::vector<float>(count, 1), seen, was_used};
                          const Work work = start_alone(context.world(), gradients.values, kind);
                          seen = detail::WorkState::of(work);
                          const Work copy = work;  // only the last handle counts
                          throw std::runtime_error("the loss is nan");
                      } catch (const std::runtime_error& error) {
                          caught = error.what();
                      }
                      seen->wait();
                  }));
    CHECK(std::chrono::steady_clock::now() - began < std::chrono::minutes(1));
    CHECK_FALSE(was_used);
    CHECK(caught == "the loss is nan");
    for (const auto& error : errors) {
        REQUIRE(error);
        CHECK(error->code() == ErrorCode::Aborted);
        CHECK(error->culprits() == Culprits{0});
        CHECK_THAT(error->what(), Contains("was aborted by " + named(0)) &&
                                      Contains(": it threw an exception while ") && Contains("'gradients'") &&
                                      Contains("was in flight. See the output of this rank"));
    }
}

TEST_CASE("an error of one operation frees the buffers of the others", "[native][unit]") {
    Gate gate(2);
    bool was_used = true;
    const auto errors = errors_of({.ranks_per_node = {2}, .timeout = kNeverPasses}, behind(gate, [&](Context& context) {
                                      context.world().barrier().wait();
                                      if (context.rank() == 1)
                                          return context.world().barrier().wait();  // not what rank 0 calls
                                      State seen;
                                      Gradients gradients{std::vector<float>(300'000, 1), seen, was_used};
                                      Work first = context.world().all_reduce(gradients.values, ReduceOp::Sum);
                                      Work second = context.world().all_reduce(gradients.values, ReduceOp::Sum);
                                      seen = detail::WorkState::of(second);
                                      first.wait();
                                  }));
    CHECK_FALSE(was_used);
    for (const auto& error : errors) {
        REQUIRE(error);
        CHECK(error->code() == ErrorCode::Mismatch);
    }
}

TEST_CASE("a Work that is made and dropped while an exception passes goes on", "[native][unit]") {
    const auto sums = run_ranks({.ranks_per_node = {2}, .timeout = kNeverPasses}, [&](Context& context) {
        std::vector<float> values(300'000, 1);
        State state;
        try {
            const AtEnd reports{[&] {
                const Work work = context.world().all_reduce(values, ReduceOp::Sum);
                state = detail::WorkState::of(work);
            }};
            throw std::runtime_error("not about the group");
        } catch (const std::runtime_error&) {
        }
        if (state) state->wait();
        context.world().barrier().wait();
        return values.back();
    });
    CHECK(sums == std::vector<float>{2, 2});
}

TEST_CASE("a copy of a Work that dies by an exception aborts nothing", "[native][unit]") {
    const auto sums = run_ranks({.ranks_per_node = {2}, .timeout = kNeverPasses}, [&](Context& context) {
        std::vector<float> values(300'000, 1);
        Work work = context.world().all_reduce(values, ReduceOp::Sum);
        try {
            const Work logged = work;
            throw std::runtime_error("cannot log");
        } catch (const std::runtime_error&) {
        }
        work.wait();
        return values.back();
    });
    CHECK(sums == std::vector<float>{2, 2});
}

TEST_CASE("an exception in a callback over a Work of the same group hangs nothing", "[native][unit]") {
    Gate gate(2);
    const auto began = std::chrono::steady_clock::now();
    const auto errors = errors_of({.ranks_per_node = {2}, .timeout = kNeverPasses}, behind(gate, [&](Context& context) {
                                      std::vector<float> one(300'000, 1);
                                      std::vector<float> two(300'000, 1);
                                      Work first = context.world().all_reduce(one, ReduceOp::Sum);
                                      if (context.rank() == 0) {
                                          first.then([&](const std::exception_ptr&) {
                                              const Work second = context.world().all_reduce(two, ReduceOp::Sum);
                                              throw std::runtime_error("out of paper");
                                          });
                                      }
                                      first.wait();
                                      int message = 0;  // never sent; no collective, which would meet `second`
                                      context.world().recv(message, 1 - context.rank(), 9).wait();
                                  }));
    CHECK(std::chrono::steady_clock::now() - began < std::chrono::minutes(1));
    for (const auto& error : errors) {
        REQUIRE(error);
        CHECK_THAT(error->what(), Contains("out of paper"));
        CHECK(error->code() == ErrorCode::Aborted);
        CHECK(error->culprits() == Culprits{0});
    }
}
