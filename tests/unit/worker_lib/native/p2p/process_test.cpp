// Ranks that are killed or stopped in the middle of sends, receives and monitored barriers: what the others report, and
// when; and that the survivors can go on in a smaller group.

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "tests/unit/worker_lib/support/processes.hpp"

using namespace ddp;
using namespace ddp::testing;

namespace {

constexpr std::size_t kCount = 400'000;

std::string words_of(const Error& error) {
    std::string culprits;
    for (const int rank : error.culprits()) culprits += std::to_string(rank) + " ";
    const char* const code = error.code() == ErrorCode::PeerLost  ? " lost "
                             : error.code() == ErrorCode::Timeout ? " late "
                                                                  : " other ";
    return std::to_string(now_ms()) + code + culprits + "| " + error.what();
}

/// Passes messages around a ring of ranks until it fails; returns when and why.
std::string exchange_for_ever(Context& context) {
    ProcessGroup& world = context.world();
    std::vector<float> out(kCount, 1);
    auto* const in = static_cast<float*>(world.arena().allocate(kCount * sizeof(float)));
    const int next = (world.rank() + 1) % world.size();
    const int previous = (world.rank() + world.size() - 1) % world.size();
    try {
        for (int i = 0;; ++i) {
            if (i == 20) context.store().set("running/" + std::to_string(context.rank()), "yes");
            TransferBatch batch = world.batch();
            batch.send(out, next).recv({in, kCount, DType::F32}, previous);
            batch.start().wait();
        }
    } catch (const Error& error) {
        return words_of(error);
    }
}

/// Returns the sum of the ranks of a group of survivors, sent around.
std::string go_on_without(Context& context, int gone) {
    const std::vector<int> exclude{gone};
    const auto group = context.world().shrink(exclude);
    std::int64_t sum = context.rank();
    group->all_reduce(sum, ReduceOp::Sum).wait();
    std::int64_t got = 0;
    TransferBatch batch = group->batch();
    batch.send(sum, (group->rank() + 1) % group->size()).recv(got, (group->rank() + group->size() - 1) % group->size());
    batch.start().wait();
    group->barrier().wait();
    return " then " + std::to_string(got);
}

/// Polls the copy of the parent's receive in a child of fork(), and drops it, while the parent is stopped and its
/// message arrives.
void meddle(Context& context, Work receive) {
    const pid_t parent = ::getppid();
    ::kill(parent, SIGSTOP);
    try {
        context.store().set("stopped", "yes");
        (void)context.store().get("sent", std::chrono::seconds(20));
        for (int i = 0; i < 100; ++i) (void)receive.done();
        const Work dropped = std::move(receive);
    } catch (const Error&) {
    }
    ::kill(parent, SIGCONT);
    ::_exit(0);
}

}  // namespace

TEST_CASE("a child of fork() receives no message of its parent", "[p2p][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{2}, {1, 1}}));
    Processes processes({.ranks_per_node = shape, .timeout = milliseconds(5'000)}, [](Context& context) -> std::string {
        ProcessGroup& world = context.world();
        std::int64_t value = 7;
        if (world.rank() == 1) {
            world.send(value, 0).wait();
            (void)context.store().get("stopped", std::chrono::seconds(20));
            Work sent = world.send(Buffer(++value), 0);
            context.store().set("sent", "yes");
            sent.wait();
            return "sent";
        }
        world.recv(value, 1).wait();
        Work receive = world.recv(value, 1);
        const pid_t child = ::fork();
        if (child == 0) meddle(context, std::move(receive));
        ::waitpid(child, nullptr, 0);
        try {
            receive.wait();
        } catch (const Error& error) {
            return words_of(error);
        }
        return std::to_string(value);
    });
    CHECK(processes.words(0) == "8");
    CHECK(processes.words(1) == "sent");
}

TEST_CASE("all ranks name a process killed while it sends and receives, and go on without it", "[p2p][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{3}, {1, 1, 1}, {2, 2}, {1, 2}}));
    const LocalWorld world{.ranks_per_node = shape};
    Processes processes(world, [](Context& context) {
        std::string text = exchange_for_ever(context);
        return text + go_on_without(context, 1);
    });
    for (int rank = 0; rank < world.size(); ++rank) processes.wait_until_running(rank);
    const auto begin = now_ms();
    processes.kill(1, SIGKILL);
    const int sum = world.size() * (world.size() - 1) / 2 - 1;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(world.size()); ++rank) {
        if (rank == 1) continue;
        const std::string text = processes.words(rank);
        INFO("rank " << rank << ": " << text);
        CHECK_THAT(text, Catch::Contains(" lost 1 | ") && Catch::Contains("rank 1 (host") && Catch::Contains("p2p #") &&
                             Catch::EndsWith(" then " + std::to_string(sum)));
        CHECK(std::stoll(text) - begin < 5000);  // not at the deadline: 30 s
    }
}

TEST_CASE("a receive notices that the process of its sender was killed", "[p2p][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{2}, {1, 1}}));
    Processes processes({.ranks_per_node = shape}, [](Context& context) -> std::string {
        float value = 0;
        context.store().set("running/" + std::to_string(context.rank()), "yes");
        if (context.rank() == 1) return context.store().get("nothing", std::chrono::minutes(1));
        try {
            context.world().recv(value, 1).wait();
        } catch (const Error& error) {
            return words_of(error);
        }
        return "received";
    });
    for (int rank = 0; rank < 2; ++rank) processes.wait_until_running(rank);
    const auto begin = now_ms();
    processes.kill(1, SIGKILL);
    const std::string text = processes.words(0);
    INFO(text);
    CHECK_THAT(text, Catch::Contains(" lost 1 | ") && Catch::Contains("rank 0 cannot finish p2p #1 recv f32[1]"));
    CHECK(std::stoll(text) - begin < 5000);  // not at the deadline: 30 s
}

TEST_CASE("a process stopped while it sends and receives leads to a timeout that names it", "[p2p][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{2}, {1, 1}}));
    const LocalWorld world{.ranks_per_node = shape, .timeout = milliseconds(700)};
    Processes processes(world, exchange_for_ever);
    for (int rank = 0; rank < world.size(); ++rank) processes.wait_until_running(rank);
    processes.kill(1, SIGSTOP);
    const std::string text = processes.words(0);
    INFO(text);
    CHECK_THAT(text, Catch::Contains(" late 1 | ") && Catch::Contains("waited until its deadline for rank 1 (host"));
}

TEST_CASE("a rank without descriptors says so, and names no culprit", "[p2p][unit]") {
    Processes processes({.ranks_per_node = {1, 1}}, [](Context& context) -> std::string {
        context.world().barrier().wait();
        if (context.rank() == 1) return context.store().get("failed", std::chrono::minutes(1));
        rlimit limit{};
        if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return "no limit";
        const rlimit none{.rlim_cur = 3, .rlim_max = limit.rlim_max};
        (void)::setrlimit(RLIMIT_NOFILE, &none);
        std::string text = "sent";
        float value = 0;
        try {
            context.world().send(value, 1).wait();
        } catch (const Error& error) {
            text = words_of(error);
        }
        (void)::setrlimit(RLIMIT_NOFILE, &limit);  // so that the text can be written
        context.store().set("failed", "yes");
        return text;
    });
    const std::string text = processes.words(0);
    INFO(text);
    CHECK_THAT(text, Catch::Contains(" other | ") && Catch::Contains("p2p #1 send f32[1] to rank 1") &&
                         Catch::Contains("cannot connect to ") &&
                         Catch::Contains(": this process has too many open files. Raise `ulimit -n`"));
}

TEST_CASE("a monitored barrier tells a killed rank from one that is stopped", "[barrier][unit]") {
    const auto shape = GENERATE(values<std::vector<int>>({{4}, {2, 2}}));
    const int signal = GENERATE(SIGKILL, SIGSTOP);
    Processes processes({.ranks_per_node = shape}, [](Context& context) -> std::string {
        context.world().barrier().wait();
        context.store().set("running/" + std::to_string(context.rank()), "yes");
        (void)context.store().get(context.rank() == 3 ? "nothing" : "struck", std::chrono::minutes(1));
        try {
            context.world().monitored_barrier(milliseconds(3'000), "epoch 3");
        } catch (const Error& error) {
            return words_of(error);
        }
        return "passed";
    });
    for (int rank = 0; rank < 4; ++rank) processes.wait_until_running(rank);
    processes.kill(3, signal);
    processes.store().set("struck", "yes");
    for (const std::size_t rank : {0, 1, 2}) {
        const std::string text = processes.words(rank);
        INFO("rank " << rank << ": " << text);
        CHECK_THAT(text, Catch::Contains(signal == SIGKILL ? " lost 3 | " : " late 3 | ") &&
                             Catch::Contains("monitored_barrier 'epoch 3': 1 of 4 ranks did not arrive") &&
                             Catch::Contains("s: rank 3 (host") &&
                             Catch::Contains(signal == SIGKILL ? "is gone: its process ended after operation #1"
                                                               : "it last completed #1"));
    }
}

TEST_CASE("a side that has gone on and died does not keep the other from going on, in any order of arrival",
          "[shrink][unit]") {
    Processes processes({.ranks_per_node = {1, 2}}, [](Context& context) -> std::string {
        Store& store = context.store();
        context.world().barrier().wait();
        const auto patience = std::chrono::seconds(20);
        if (context.rank() == 0) {
            const auto alone = context.world().shrink(std::vector<int>{1, 2});
            store.set("running/0", "yes");
            return store.get("nothing", std::chrono::minutes(1));
        }
        (void)store.get("killed", patience);
        // Rank 1, which leads its node, notices the death; rank 2 does not, and arrives last.
        if (context.rank() == 2) {
            for (int i = 0; i < 10'000 && store.add("ddp/0/of-3/world/shrink/0/1/count", 0) == 0; ++i) ::usleep(1'000);
        }
        try {
            return go_on_without(context, 0);
        } catch (const Error& error) {
            return error.what();
        }
    });
    processes.wait_until_running(0);
    processes.kill(0, SIGKILL);
    (void)processes.wait(0);
    processes.store().set("killed", "yes");
    for (const std::size_t rank : {1, 2}) CHECK(processes.words(rank) == " then 3");
}
