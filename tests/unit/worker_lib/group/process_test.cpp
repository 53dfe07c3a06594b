// Ranks that are real processes: what a killed one leaves behind, and what all of them do.

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "common/system/process_state.hpp"
#include "ddp/reducer.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "tests/unit/worker_lib/support/processes.hpp"

using namespace ddp;
using namespace ddp::testing;

namespace {

/// Reduces until an operation fails; prints when and why.
std::string reduce_for_ever(Context& context) {
    auto* data = static_cast<float*>(context.world().arena().allocate(1u << 20));
    try {
        for (int i = 0;; ++i) {
            if (i == 20) context.store().set("running/" + std::to_string(context.rank()), "yes");
            context.world().all_reduce({data, (1u << 20) / sizeof(float), DType::F32}, ReduceOp::Sum).wait();
        }
    } catch (const Error& error) {
        std::string culprits;
        for (const int rank : error.culprits()) culprits += std::to_string(rank) + " ";
        return std::to_string(now_ms()) + " " + (error.code() == ErrorCode::PeerLost ? "lost " : "other ") + culprits +
               "| " + error.what();
    }
}

}  // namespace

TEST_CASE("processes reduce together and leave nothing behind", "[native][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{3}, {2, 2}}));
    const LocalWorld world{.ranks_per_node = shape};
    Processes processes(world, [](Context& context) {
        const std::size_t descriptors = open_descriptors();
        const std::size_t mappings = shared_mappings();
        std::string words;
        {
            const auto group = context.world().split(0, 0, "inner");
            auto* data = static_cast<float*>(group->arena().allocate(100'000 * sizeof(float)));
            std::fill_n(data, 100'000, static_cast<float>(context.rank()));
            group->all_reduce({data, 100'000, DType::F32}, ReduceOp::Sum).wait();
            words = std::to_string(static_cast<int>(data[99'999]));
            group->barrier().wait();
        }
        // Fewer is possible: the connections of the outer group to a rank that has gone already.
        if (open_descriptors() > descriptors) words += ", descriptors left";
        if (shared_mappings() != mappings) words += ", memory left";
        return words;
    });
    for (int rank = 0; rank < world.size(); ++rank)
        CHECK(processes.words(static_cast<std::size_t>(rank)) == (world.size() == 3 ? "3" : "6"));
}

TEST_CASE("a monitored barrier reports that the process of an absent neighbour is stopped", "[native][unit]") {
    const LocalWorld world{.ranks_per_node = {2, 1}};
    Processes processes(world, [](Context& context) -> std::string {
        context.world().barrier().wait();
        context.store().set("running/" + std::to_string(context.rank()), std::to_string(::getpid()));
        if (context.rank() == 1) return context.store().get("never", std::chrono::minutes(1));
        (void)context.store().get("stopped", std::chrono::seconds(20));
        try {
            context.world().monitored_barrier(milliseconds(3'000));  // in which both come
        } catch (const Error& error) {
            return error.what();
        }
        return "passed";
    });
    for (int rank = 0; rank < world.size(); ++rank) processes.wait_until_running(rank);
    const std::string pid = processes.store().get("running/1", milliseconds(0));
    processes.kill(1, SIGSTOP);
    while (ddprun::process_state(std::stoi(pid)) != ddprun::ProcessState::kStopped) std::this_thread::yield();
    processes.store().set("stopped", "");
    for (const std::size_t rank : {0, 2}) {
        CHECK_THAT(processes.words(rank),
                   Catch::Contains(": rank 1 (host ") &&
                       Catch::Contains(" is alive and in no operation; it last completed #1, and its "
                                       "process " +
                                       pid + " is stopped (a signal, a debugger): kill -CONT " + pid +
                                       ". The group stays usable"));
    }
}

TEST_CASE("a killed process is named by all others at once", "[native][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{3}, {1, 1, 1}, {2, 2}}));
    const LocalWorld world{.ranks_per_node = shape};
    const auto size = static_cast<std::size_t>(world.size());
    Processes processes(world, reduce_for_ever);
    for (int rank = 0; rank < world.size(); ++rank) processes.wait_until_running(rank);
    const auto begin = now_ms();
    processes.kill(1, SIGKILL);
    for (std::size_t rank = 0; rank < size; ++rank) {
        if (rank == 1) continue;
        const std::string words = processes.words(rank);
        INFO("rank " << rank << ": " << words);
        CHECK_THAT(words, Catch::Contains(" lost 1 | ") && Catch::Contains("rank 1 (host") &&
                              Catch::Contains("all_reduce sum f32[262144]"));
        CHECK(std::stoll(words) - begin < 15'000);  // a moment; the deadline is after 30 s
    }
}

TEST_CASE("a killed process is named on another node, though all ranks in between are idle", "[native][unit]") {
    struct Case {
        std::vector<int> shape;
        std::size_t killed;
        std::size_t waiting;
    };
    // In {1, 3} ranks 2 and 3 talk to no other node; rank 2 of {2, 2} leads its node, and rank 0 is its counterpart.
    const auto [shape, killed, waiting] = GENERATE(Case{{1, 3}, 3, 0}, Case{{1, 3}, 0, 2}, Case{{2, 2}, 2, 1});
    const LocalWorld world{.ranks_per_node = shape};
    Processes processes(world, [waiting = waiting](Context& context) -> std::string {
        context.world().barrier().wait();
        if (context.rank() == static_cast<int>(waiting)) return reduce_for_ever(context);
        context.store().set("idle/" + std::to_string(context.rank()), "yes");
        return context.store().get("nothing", std::chrono::minutes(1));
    });
    for (std::size_t rank = 0; rank < 4; ++rank) {
        if (rank == waiting) continue;
        REQUIRE(processes.store().get("idle/" + std::to_string(rank), std::chrono::seconds(30)) == "yes");
    }
    const auto begin = now_ms();
    processes.kill(killed, SIGKILL);
    const std::string words = processes.words(waiting);
    INFO(words);
    CHECK_THAT(words, Catch::Contains(" lost " + std::to_string(killed) + " | ") &&
                          Catch::Contains("rank " + std::to_string(killed) + " (host") &&
                          Catch::Contains("cannot finish #2 all_reduce sum f32[262144]"));
    CHECK(std::stoll(words) - begin < 15'000);  // a moment; the deadline is after 30 s
}

TEST_CASE("a stopped process is a timeout that names it", "[native][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{2}, {1, 1}}));
    const LocalWorld world{.ranks_per_node = shape, .timeout = milliseconds(700)};
    Processes processes(world, reduce_for_ever);
    for (int rank = 0; rank < world.size(); ++rank) processes.wait_until_running(rank);
    processes.kill(1, SIGSTOP);
    const std::string words = processes.words(0);
    INFO(words);
    CHECK_THAT(words, Catch::Contains(" other 1 | ") && Catch::Contains("waited until its deadline for rank 1 (host"));
}

TEST_CASE("ranks that stood still together do not report each other", "[native][unit]") {
    // Rank 2 does not come. Rank 0 waits for its message, and rank 1 for rank 0, which says that it waits; both are
    // stopped until after their deadline, and rank 1 is the first to go on.
    const LocalWorld world{.ranks_per_node = {2, 1}};
    Processes processes(world, [](Context& context) -> std::string {
        context.world().barrier().wait();
        context.store().set("running/" + std::to_string(context.rank()), "yes");
        if (context.rank() == 2) return context.store().get("over", std::chrono::minutes(1));
        try {
            context.world().barrier({.timeout = milliseconds(1500)}).wait();
        } catch (const Error& error) {
            return error.culprits() == std::vector<int>{2} ? "right" : error.what();
        }
        return "passed";
    });
    for (int rank = 0; rank < 3; ++rank) processes.wait_until_running(rank);
    std::this_thread::sleep_for(milliseconds(500));
    for (const std::size_t rank : {0, 1}) processes.kill(rank, SIGSTOP);
    std::this_thread::sleep_for(milliseconds(1200));
    processes.kill(1, SIGCONT);
    std::this_thread::sleep_for(milliseconds(30));
    processes.kill(0, SIGCONT);
    for (const std::size_t rank : {0, 1}) CHECK(processes.words(rank) == "right");
    processes.store().set("over", "");
}

TEST_CASE("a limit on file sizes makes the arena smaller and nothing fail", "[native][unit]") {
    Processes processes({.ranks_per_node = {1}}, [](Context& context) -> std::string {
        const rlimit limit{.rlim_cur = 64u << 20, .rlim_max = RLIM_INFINITY};
        if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return "no limit";
        const auto group = context.world().split(0, 0, "small");
        (void)group->arena().allocate(16u << 20);
        try {
            (void)group->arena().allocate(64u << 20);
        } catch (const Error& error) {
            return error.what();
        }
        return "more than there is";
    });
    CHECK_THAT(processes.words(0),
               Catch::Contains("no room for 67108864 bytes in the arena") && Catch::Contains("ulimit -f"));
}

TEST_CASE("a limit on file sizes that leaves no room is explained, not a signal", "[native][unit]") {
    const auto limit_bytes = GENERATE(std::size_t{1} << 20, std::size_t{4} << 20, std::size_t{9} << 20);
    Processes processes({.ranks_per_node = {1}}, [limit_bytes](Context& context) -> std::string {
        const rlimit limit{.rlim_cur = limit_bytes, .rlim_max = RLIM_INFINITY};
        if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return "no limit";
        std::string words = "accepted";
        try {
            (void)context.world().split(0, 0, "small");
        } catch (const Error& error) {
            words = error.what();
        }
        const rlimit none{.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
        (void)::setrlimit(RLIMIT_FSIZE, &none);  // so that the words can be written
        return words;
    });
    CHECK_THAT(processes.words(0), Catch::Contains("ulimit -f") && Catch::Contains("shared memory"));
}

TEST_CASE("a thread's world leaves no descriptor and no mapping", "[native][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{4}, {2, 1, 1}}));
    const std::size_t descriptors = open_descriptors();
    REQUIRE(shared_mappings() == 0);
    run_ranks({.ranks_per_node = shape}, [](Context& context) { context.world().barrier().wait(); });
    CHECK(open_descriptors() == descriptors);
    CHECK(shared_mappings() == 0);
}

TEST_CASE("a child of fork() cannot use its parent's groups, nor end them", "[native][unit]") {
    const LocalWorld world{.ranks_per_node = {2}};
    Processes processes(world, [](Context& context) -> std::string {
        auto group = context.world().split(0, 0, "inner");
        ReducerOptions options;
        options.on_bucket_done = [](const GradBucket&) {};  // has a thread of its own
        auto reducer = std::make_unique<GradientReducer>(*group, std::vector<ParamSpec>{{"w", 4, DType::F32}}, options);
        group->barrier().wait();
        const pid_t child = ::fork();
        if (child == 0) {
            bool refused = false;
            try {
                group->barrier().wait();
            } catch (const Error& error) {
                refused = error.code() == ErrorCode::InvalidArgument &&
                          std::string(error.what()).find("is a child of fork()") != std::string::npos;
            }
            group->abort("as its parent would");
            try {
                reducer->begin_backward();
                reducer->mark_ready(0);
                refused = false;
            } catch (const Error&) {
            }
            reducer.reset();
            group.reset();
            ::_exit(refused ? 0 : 1);
        }
        int status = -1;
        ::waitpid(child, &status, 0);
        group->barrier().wait();
        return status == 0 ? "refused" : "status " + std::to_string(status);
    });
    for (int rank = 0; rank < world.size(); ++rank) CHECK(processes.words(static_cast<std::size_t>(rank)) == "refused");
}

TEST_CASE("a rank that makes a context again meets the others' next one", "[native][unit]") {
    const LocalWorld world{.ranks_per_node = {2}};
    Processes processes(world, [](Context& context) -> std::string {
        std::string sums;
        for (int i = 0; i < 2; ++i) {
            Environment place;
            place.rank = context.rank();
            place.world_size = place.local_world_size = context.world_size();
            place.local_rank = context.local_rank();
            Context again(place, std::shared_ptr<Store>(&context.store(), [](Store*) {}), {});
            float value = static_cast<float>(context.rank() + i);
            again.world().all_reduce({&value, 1, DType::F32}, ReduceOp::Sum).wait();
            const auto half = again.world().split(0, 0, "half");
            half->barrier().wait();
            sums += std::to_string(static_cast<int>(value)) + " ";
        }
        context.world().barrier().wait();
        return sums;
    });
    for (int rank = 0; rank < world.size(); ++rank) CHECK(processes.words(static_cast<std::size_t>(rank)) == "1 3 ");
}
