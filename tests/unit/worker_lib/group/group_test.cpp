// What a group refuses before any other rank learns of it, worlds of one, the arena, and calls of groups that have
// ended.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <future>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ddp/reducer.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "tests/unit/worker_lib/support/world_errors.hpp"

using namespace ddp;
using namespace ddp::testing;

namespace {

/// Returns what the call throws: "code: text".
template <typename Call>
std::string refusal(Call call) {
    try {
        call();
    } catch (const Error& error) {
        return (error.code() == ErrorCode::InvalidArgument ? "" : "wrong code: ") + std::string(error.what());
    }
    return "accepted";
}

using std::chrono::milliseconds;

/// Counts the waits for other ranks.
class CountingStore final : public Store {
public:
    void set(std::string_view key, std::string_view value) override { store_->set(key, value); }
    std::string get(std::string_view key, milliseconds timeout) override {
        ++waits;
        return store_->get(key, timeout);
    }
    std::optional<std::string> try_get(std::string_view key, milliseconds timeout) override {
        return store_->try_get(key, timeout);
    }
    bool wait_for_keys(const std::vector<std::string>& keys, milliseconds timeout) override {
        ++waits;
        return store_->wait_for_keys(keys, timeout);
    }
    std::string set_once(std::string_view key, std::string_view value) override { return store_->set_once(key, value); }
    std::int64_t add(std::string_view key, std::int64_t amount) override { return store_->add(key, amount); }
    std::string local_address() const override { return store_->local_address(); }

    std::atomic<int> waits{0};

private:
    const std::shared_ptr<Store> store_ = detail::make_local_store();
};

Context lone_context() {
    const LocalWorld world;
    return {world.environment(0), detail::make_local_store(), world.options()};
}

}  // namespace

TEST_CASE("wrong arguments are refused at the call and the group stays usable", "[group][unit]") {
    Context context = lone_context();
    ProcessGroup& world = context.world();
    std::vector<float> floats(4, 2);
    std::vector<int> integers(4, 3);
    const Buffer good = Buffer(floats);
    const auto reduce = [&](Buffer bad, ReduceOp op) { return refusal([&] { (void)world.all_reduce(bad, op); }); };

    // Of the ranks that share a terminal it says which one.
    CHECK_THAT(
        reduce({nullptr, 4, DType::F32}, ReduceOp::Sum),
        Catch::Matches(
            "group 'world': rank 0 \\(host [^ ]+, pid [0-9]+\\): #1 all_reduce sum f32\\[4\\]: the buffer is null"));
    CHECK_THAT(reduce({reinterpret_cast<char*>(floats.data()) + 1, 1, DType::F32}, ReduceOp::Sum),
               Catch::Contains("not aligned"));
    CHECK_THAT(reduce({floats.data(), 4, DType::F32, Device::Cuda}, ReduceOp::Sum),
               Catch::Contains("the buffer is device memory, and the native backend takes host memory only: use a "
                               "group of Backend::Nccl (InitOptions::backend), or copy it to the host"));
    CHECK_THAT(reduce({floats.data(), SIZE_MAX / 2, DType::F32}, ReduceOp::Sum), Catch::Contains("too large"));
    CHECK_THAT(reduce({floats.data(), 4, static_cast<DType>(99)}, ReduceOp::Sum),
               Catch::Contains("unknown element type 99"));
    CHECK_THAT(reduce(good, static_cast<ReduceOp>(99)), Catch::Contains("unknown reduction"));
    CHECK_THAT(reduce(integers, ReduceOp::Avg), Catch::Contains("avg is defined for floats only"));
    CHECK_THAT(reduce(good, ReduceOp::BitXor), Catch::Contains("integers only"));
    CHECK_THAT(refusal([&] { (void)world.broadcast(good, 1); }), Catch::Contains("there is no rank 1 in a group of 1"));
    CHECK_THAT(refusal([&] { (void)world.broadcast(good, -1); }), Catch::Contains("there is no rank -1"));
    CHECK_THAT(refusal([&] { (void)world.barrier({.timeout = std::chrono::milliseconds(-1)}); }),
               Catch::Contains("OpOptions::timeout is -1 ms"));

    int no_stream = 0;
    const OpOptions on_stream{.stream = {&no_stream}};
    CHECK_THAT(refusal([&] { (void)world.broadcast(good, 0, on_stream); }),
               Catch::Contains("broadcast f32[4] root 0: OpOptions::stream is set, but an operation on host memory"));
    CHECK_THAT(refusal([&] { (void)world.barrier(on_stream); }), Catch::Contains("OpOptions::stream is set"));
    CHECK_THAT(refusal([&] { (void)world.send(good, 0, 0, on_stream); }), Catch::Contains("OpOptions::stream is set"));

    try {
        (void)world.broadcast(good, 1, {.label = "x"});
    } catch (const Error& error) {
        CHECK(error.group() == "world");
        CHECK(error.operation() == "#1 broadcast f32[4] root 1 'x'");
        CHECK(error.seq() == 1);
    }

    Work work = world.all_reduce(good, ReduceOp::Avg);
    work.wait();
    CHECK(work.seq() == 1);  // refused calls have no number
    CHECK(floats == std::vector<float>(4, 2));
}

TEST_CASE("errors show the beginning of a long tag", "[group][unit]") {
    std::string tag;
    for (int i = 0; i < 1000; ++i) tag += "é";
    const OpOptions options{.label = tag};
    std::latch refused(1);
    const auto texts = run_ranks({.ranks_per_node = {2}}, [&](Context& context) -> std::vector<std::string> {
        ProcessGroup& world = context.world();
        if (context.rank() == 1) {
            refused.wait();
            return {};
        }
        float value = 0;
        const Buffer one = Buffer(std::span(&value, 1));
        std::vector<std::string> own{refusal([&] { (void)world.broadcast(one, 7, options); }),
                                     refusal([&] { (void)world.send(one, 7, 0, options); }),
                                     refusal([&] { world.monitored_barrier(milliseconds(50), tag); })};
        refused.count_down();
        return own;
    });
    REQUIRE(texts[0].size() == 3);
    for (const std::string& text : texts[0]) {
        CHECK_THAT(text, Catch::Contains(" 'éé") && Catch::Contains("éé…'"));
        CHECK(text.size() < 600);
    }
}

TEST_CASE("a world of one does everything alone", "[group][unit]") {
    Context context = lone_context();
    CHECK(context.world().size() == 1);
    CHECK(context.world().backend() == Backend::Native);
    std::vector<float> values{1, 2, 3};
    context.world().all_reduce(values, ReduceOp::Sum).wait();
    context.world().broadcast(values, 0).wait();
    context.world().barrier().wait();
    CHECK(values == std::vector<float>{1, 2, 3});
    const auto group = context.world().split(4, 0, "part");
    CHECK(group->size() == 1);
    CHECK(context.world().split(-1, 0, "none") == nullptr);
    context.world().abort("test");
    CHECK_THROWS_WITH(context.world().barrier().wait(),
                      Catch::Contains("aborted by rank 0 (host ") && Catch::Contains("): test"));
}

TEST_CASE("the ranks of a machine are a group, and the first ranks of all machines are one", "[group][unit]") {
    const auto seen = run_ranks({.ranks_per_node = {2, 1, 3}}, [](Context& context) {
        int here = context.rank();
        int everywhere = -1;
        const auto local = context.split_by_machine();
        local->all_reduce(here, ReduceOp::Sum).wait();
        const auto leaders = context.split_leaders();
        if (leaders != nullptr) {
            everywhere = context.rank();
            leaders->all_reduce(everywhere, ReduceOp::Sum).wait();
        }
        return std::vector<int>{local->rank(), local->size(), here, everywhere};
    });
    // Ranks 0, 1 | 2 | 3, 4, 5.
    CHECK(seen == std::vector<std::vector<int>>{
                      {0, 2, 1, 5}, {1, 2, 1, -1}, {0, 1, 2, 5}, {0, 3, 12, 5}, {1, 3, 12, -1}, {2, 3, 12, -1}});
}

TEST_CASE("the ranks agree only if all do", "[group][unit]") {
    const auto answers = run_ranks({.ranks_per_node = {2, 1}}, [](Context& context) {
        std::vector<bool> all{context.agree(true), context.agree(context.rank() != 2), context.agree(false)};
        all.push_back(context.agree(true));
        return all;
    });
    CHECK(answers == std::vector(3, std::vector{true, false, false, true}));
}

TEST_CASE("ranks have names", "[group][unit]") {
    Context context = lone_context();
    CHECK_THAT(context.world().name_of(0), Catch::StartsWith("rank 0 (host ") && Catch::Contains(", pid "));
    CHECK_THAT(refusal([&] { (void)context.world().name_of(1); }),
               Catch::Contains("): there is no rank 1 in a group of 1"));
}

TEST_CASE("an empty handle is done", "[group][unit]") {
    Work work;
    CHECK(work.done());
    work.wait();
    work.wait_host(std::chrono::milliseconds(1));
    bool called = false;
    work.then([&](const std::exception_ptr& error) { called = !error; });
    CHECK(called);
}

TEST_CASE("waiting with a limit leaves the operation alone", "[group][unit]") {
    const auto results = run_ranks({.ranks_per_node = {2}}, [](Context& context) {
        if (context.rank() == 1) {
            // Only after rank 0 has seen its wait end does it get what it waits for.
            (void)context.store().get("tired", std::chrono::seconds(20));
            context.world().barrier().wait();
            return std::string("came");
        }
        Work work = context.world().barrier();
        std::string text;
        try {
            work.wait_host(std::chrono::milliseconds(20));
        } catch (const Error& error) {
            text = error.code() == ErrorCode::Timeout ? error.what() : "wrong code";
        }
        context.store().set("tired", "yes");
        work.wait();
        return text;
    });
    CHECK_THAT(results[0], Catch::Contains("group 'world': rank 0 (host ") &&
                               Catch::Contains("): #1 barrier is not done after 20 ms"));
}

TEST_CASE("the arena gives zeroed, aligned, separate memory, and an error when there is no room", "[group][unit]") {
    Context context = lone_context();
    Arena& arena = context.world().arena();
    auto* first = static_cast<std::byte*>(arena.allocate(1));
    auto* second = static_cast<std::byte*>(arena.allocate(100'000));
    CHECK(reinterpret_cast<std::uintptr_t>(first) % 128 == 0);
    CHECK(second >= first + 128);
    CHECK(std::vector<std::byte>(second, second + 100'000) == std::vector<std::byte>(100'000));
    std::memset(second, 1, 100'000);
    CHECK(*first == std::byte{0});
    CHECK(arena.allocate(0) != nullptr);
    try {
        (void)arena.allocate(SIZE_MAX / 2);
        FAIL("accepted");
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::System);
        CHECK_THAT(error.what(), Catch::Contains("no room for"));
    }
}

TEST_CASE("a split that the ranks name differently is refused", "[group][unit]") {
    const auto outcomes = try_ranks({.ranks_per_node = {2}}, [](Context& context) {
        (void)context.world().split(0, 0, context.rank() == 0 ? "left" : "right");
    });
    for (const auto& outcome : outcomes) {
        REQUIRE(outcome.error);
        CHECK(outcome.ddp_error()->code() == ErrorCode::Mismatch);
        CHECK_THAT(outcome.text(), Catch::Contains("passes 'left'") && Catch::Contains("passes 'right'") &&
                                       Catch::EndsWith(". Pass the same name on all ranks of color 0"));
    }
}

TEST_CASE("collective calls do not wait for lost ranks", "[group][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{3}, {1, 2}, {2, 1}, {1, 1, 1}}));
    const std::string what = GENERATE("'evaluation'", "'reducer'", "split_by_machine()", "split_leaders()");
    const auto began = std::chrono::steady_clock::now();
    Gate gate(2);
    const auto errors = errors_of({.ranks_per_node = shape}, [&](Context& context) {
        context.world().barrier().wait();
        if (context.rank() == 2) return;
        behind(gate, [&](Context& mine) {
            if (what == "'evaluation'") (void)mine.world().split(0, 0, "evaluation");
            if (what == "'reducer'") GradientReducer(mine.world(), {{"a", 1}});
            if (what == "split_by_machine()") (void)mine.split_by_machine();
            if (what == "split_leaders()") (void)mine.split_leaders();
        })(context);
    });
    CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(10));
    for (const std::size_t rank : {0, 1}) {
        REQUIRE(errors[rank]);
        INFO(errors[rank]->what());
        CHECK(errors[rank]->code() == ErrorCode::PeerLost);
        CHECK(errors[rank]->culprits() == Culprits{2});
        CHECK_THAT(errors[rank]->what(),
                   Catch::Contains("has left the group normally after operation #1") && Catch::Contains(what));
    }
}

TEST_CASE("a rank that waits long for a late one in split asks the store seldom", "[group][unit]") {
    const LocalWorld world{.ranks_per_node = {2}};
    const auto store = std::make_shared<CountingStore>();
    std::atomic<int> before{0};
    const auto rank = [&](int number) {
        Context context(world.environment(number), store, world.options());
        context.world().barrier().wait();
        if (number == 0) before = store->waits.load();
        context.world().barrier().wait();
        if (number == 1) std::this_thread::sleep_for(milliseconds(1'500));
        (void)context.world().split(0, number, "late");
    };
    auto other = std::async(std::launch::async, rank, 1);
    rank(0);
    other.get();
    CHECK(store->waits - before <= 16);  // each rank: a few looks, and what it reads of the other
}

TEST_CASE("after an abort nothing is called with success but shrink", "[group][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{3}, {1, 2}, {1, 1, 1}}));
    Gate through(3);  // or the abort would end the barrier of ranks that are still in it
    const auto results = run_ranks({.ranks_per_node = shape}, [&](Context& context) {
        ProcessGroup& group = context.world();
        group.barrier().wait();
        through.pass();
        if (context.rank() == 1) group.abort("no memory left");
        std::string failures;
        const auto expect_abort = [&](const char* what, auto call) {
            const auto began = std::chrono::steady_clock::now();
            try {
                call();
                failures += std::string(what) + " was possible; ";
            } catch (const Error& error) {
                const bool told = std::string(error.what()).find("no memory left") != std::string::npos;
                if (error.code() != ErrorCode::Aborted || !told) failures += error.what();
            }
            if (std::chrono::steady_clock::now() - began > std::chrono::seconds(10)) failures += " slow";
        };
        expect_abort("monitored_barrier", [&] { group.monitored_barrier(std::chrono::seconds(25)); });
        expect_abort("split", [&] { (void)group.split(0, 0, "evaluation"); });
        expect_abort("a reducer", [&] { GradientReducer(group, {{"a", 1}}); });
        const auto again = group.shrink({});
        again->monitored_barrier(std::chrono::seconds(25));
        return failures;
    });
    CHECK(results == std::vector<std::string>(3));
}
