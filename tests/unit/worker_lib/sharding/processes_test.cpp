// Ranks that are processes: one is killed in a scope, one writes to parameters, and all of them share memory.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "ddp/ddp.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/processes.hpp"
#include "worker_lib/src/native/shm/segment.hpp"

using Catch::Contains;
using ddp::Context;
using ddp::Error;
using ddp::ErrorCode;
using ddp::ParamSpec;
using ddp::Shard;
using ddp::ShardedParameters;
using ddp::Sharding;
using ddp::ShardOptions;
using ddp::testing::LocalWorld;
using ddp::testing::now_ms;
using ddp::testing::Processes;

namespace {

constexpr std::chrono::minutes kNoDeadline{5};  // no test waits for a deadline

void fill_with(ShardedParameters& model, float value) {
    model.fill([&](std::size_t, std::size_t, ddp::Buffer part) { std::ranges::fill(part.as<float>(), value); });
}

/// Kills this process, and leaves the time of its death to the test.
void die(Context& context) {
    context.store().set("died", std::to_string(now_ms()));
    ::raise(SIGKILL);
}

}  // namespace

TEST_CASE("A6: peers of a rank that is killed in a step get PeerLost naming the unit or the update", "[sharding]") {
    const std::string place = GENERATE("forward", "backward", "update");
    const bool mapped = GENERATE(true, false);
    const auto sharding = GENERATE(Sharding::Full, Sharding::Optimizer);
    CAPTURE(place, mapped, static_cast<int>(sharding));
    Processes processes({.ranks_per_node = {3}, .timeout = kNoDeadline}, [&](Context& context) -> std::string {
        ShardedParameters model(context.world(), {{{"fc0", 9'000}}, {{"fc1", 9'000}}, {{"fc2", 9'000}}},
                                {.sharding = sharding, .mapped = mapped});
        try {
            for (int step = 0;; ++step) {
                const bool dies = context.rank() == 1 && step == 1;
                for (std::size_t u = 0; u < 3; ++u) {
                    const auto scope = model.forward(u);
                    if (dies && place == "forward" && u == 1) die(context);
                }
                model.begin_backward();
                for (std::size_t u = 3; u-- > 0;) {
                    const auto scope = model.backward(u);
                    std::ranges::fill(scope.grad<float>(0), 1.0f);
                    if (dies && place == "backward" && u == 1) die(context);
                }
                if (dies) die(context);
                model.finish_backward();
            }
        } catch (const Error& error) {
            return std::to_string(now_ms()) + (error.code() == ErrorCode::PeerLost ? " lost " : " other ") +
                   error.what();
        }
    });
    for (const std::size_t rank : {0u, 2u}) {
        const std::string words = processes.words(rank);
        INFO(words);
        CHECK_THAT(words, Contains(" lost ") && Contains("rank 1"));
        // Mapped, peers that have the last gradients wait in the barrier of the update.
        if (place != "update" || words.find(" 'update'") == std::string::npos) CHECK_THAT(words, Contains("'unit "));
        const std::int64_t died = std::stoll(processes.store().get("died", std::chrono::seconds(30)));
        CHECK(std::stoll(words) - died < 10'000);  // on a machine with much other work; the deadline is 5 minutes
    }
}

TEST_CASE("A7: a write to a mapped parameter ends that rank, and changes no rank's parameters", "[sharding]") {
    const std::size_t element = GENERATE(0u, 4'095u);  // of the writer's own part, and of its peer's
    const auto sharding = GENERATE(Sharding::Full, Sharding::Optimizer, Sharding::None);
    Processes processes({.ranks_per_node = {2}, .timeout = kNoDeadline}, [&](Context& context) -> std::string {
        ShardedParameters model(context.world(), {{{"w", 4'096}}}, {.sharding = sharding});
        fill_with(model, 7);
        const auto scope = model.forward(0);
        const std::span<const float> whole = scope.param<float>(0);
        if (context.rank() == 0) {
            ::signal(SIGSEGV, SIG_DFL);  // not that of the test program
            const rlimit no_dump{};
            ::setrlimit(RLIMIT_CORE, &no_dump);
            const_cast<float&>(whole[element]) = 1;
            return "has written";
        }
        std::string words;
        try {
            context.world().barrier().wait();
        } catch (const Error& error) {
            words = error.code() == ErrorCode::PeerLost ? "lost" : error.what();
        }
        const auto is_filled = [](std::span<const float> values) {
            return std::ranges::all_of(values, [](float value) { return value == 7; });
        };
        for (const Shard& shard : model.shards())
            if (!is_filled(shard.values.as<float>())) words += ", its part has changed";
        if (!is_filled(whole)) words += ", the unit has changed";
        return words;
    });
    const int status = processes.wait(0);
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGSEGV);
    CHECK(processes.words(1) == "lost");
}

namespace {

/// Returns how many mappings this process may have.
std::size_t max_mappings() {
    std::size_t limit = 0;
    std::ifstream("/proc/sys/vm/max_map_count") >> limit;
    return limit;
}

/// Takes mappings until this process may have only `left` more.
void leave_mappings(std::size_t left) {
    std::ifstream maps("/proc/self/maps");
    const auto used = std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
    const std::size_t count = max_mappings() - static_cast<std::size_t>(used) - left;
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    void* const pages = ::mmap(nullptr, count * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (std::size_t i = 0; i < count; i += 2)  // neighbours that differ are mappings of their own
        ::mprotect(static_cast<std::byte*>(pages) + i * page, page, PROT_READ);
}

}  // namespace

TEST_CASE("a rank that cannot map a unit fails all of them, and names itself and the remedy", "[sharding]") {
    if (max_mappings() > 200'000) {
        WARN("vm.max_map_count is " << max_mappings() << ": too many to use them up");
        return;
    }
    Processes processes({.ranks_per_node = {2}, .timeout = kNoDeadline}, [&](Context& context) -> std::string {
        if (context.rank() == 0) leave_mappings(400);  // for groups and threads; the units would take 2,000
        try {
            ShardedParameters model(context.world(), std::vector<std::vector<ParamSpec>>(1'000, {{"", 2'048}}));
            static_cast<void>(model.forward(0));
        } catch (const Error& error) {
            return error.what();
        }
        return "nothing";
    });
    CHECK_THAT(processes.words(0), Contains("'shard gathers of world': rank 0: cannot map 4096 bytes of whole units") &&
                                       Contains("vm.max_map_count") && Contains("ShardOptions::mapped") &&
                                       !Contains("left"));
    CHECK_THAT(processes.words(1), Contains("rank 0") && Contains("cannot map") && !Contains("left"));
}

TEST_CASE("a rank without room for its parts is the one that all ranks name", "[sharding]") {
    Processes processes({.ranks_per_node = {2}, .timeout = kNoDeadline}, [&](Context& context) -> std::string {
        if (context.rank() == 1) {  // its arenas have less than 8 MiB from now on
            const rlim_t limit = ddp::detail::kPostBytes + ddp::detail::kStagingBytes + (8 << 20);
            const rlimit files{limit, limit};
            ::setrlimit(RLIMIT_FSIZE, &files);
        }
        try {
            ShardedParameters model(context.world(), {{{"w", 4 << 20}}, {{"v", 4 << 20}}});
            static_cast<void>(model.forward(0));
        } catch (const Error& error) {
            return error.what();
        }
        return "nothing";
    });
    for (const std::size_t rank : {0u, 1u}) {
        const std::string words = processes.words(rank);
        CHECK_THAT(words, Contains("no room for") && Contains("ulimit -f"));
    }
}

#if !defined(__SANITIZE_ADDRESS__)  // whose own memory would be counted

namespace {

constexpr std::size_t kLayers = 12;
constexpr std::size_t kWidth = 1024;
constexpr double kUnitMiB = kWidth * kWidth * sizeof(float) / 1048576.0;

/// Returns this process's share of the memory that it maps, in MiB.
double own_mib() {
    std::ifstream rollup("/proc/self/smaps_rollup");
    for (std::string line; std::getline(rollup, line);) {
        if (line.starts_with("Pss:")) return std::stod(line.substr(4)) / 1024;
    }
    return -1;
}

/// Returns the average over the ranks of the memory that they have taken since `before`, while all of them are here.
double average_since(double before, Context& context) {
    context.world().barrier().wait();
    double taken = own_mib() - before;
    context.world().all_reduce(taken, ddp::ReduceOp::Avg).wait();
    return taken;
}

/// Returns the peak of two steps with Adam.
double peak_of_training(Context& context, const ShardOptions& options) {
    const double before = average_since(0, context);
    std::vector<std::vector<ParamSpec>> units(kLayers, {{"", kWidth * kWidth}});
    ShardedParameters model(context.world(), units, options);
    fill_with(model, 0.5f);
    std::vector<float> first(model.size()), second(model.size());
    double peak = 0;
    for (int step = 0; step < 2; ++step) {
        float sum = 0;
        const auto read = [&](const ShardedParameters::Scope& scope) {
            for (const float value : scope.param<float>(0)) sum += value;
        };
        for (std::size_t u = 0; u < kLayers; ++u) read(model.forward(u));
        peak = std::max(peak, average_since(before, context));
        model.begin_backward();
        for (std::size_t u = kLayers; u-- > 0;) {
            const auto scope = model.backward(u);
            read(scope);
            std::ranges::fill(scope.grad<float>(0), sum * 1e-9f);
        }
        model.finish_backward();
        std::size_t k = 0;
        for (const Shard& shard : model.shards()) {
            const auto values = shard.values.as<float>(), grads = shard.grad.as<float>();
            for (std::size_t i = 0; i < values.size(); ++i, ++k) {
                first[k] = 0.9f * first[k] + 0.1f * grads[i];
                second[k] = 0.999f * second[k] + 0.001f * grads[i] * grads[i];
                values[i] -= 0.001f * first[k] / (std::sqrt(second[k]) + 1e-8f);
            }
        }
        peak = std::max(peak, average_since(before, context));
    }
    return peak;
}

}  // namespace

TEST_CASE("A8: mapped, a node has each parameter once, and two gradients of units for each rank", "[sharding]") {
    const int ranks = GENERATE(2, 4);
    const auto sharding = GENERATE(Sharding::Full, Sharding::GradOp);
    const bool mapped = GENERATE(true, false);
    if (!mapped && sharding != Sharding::Full) return;
    Processes processes({.ranks_per_node = {ranks}, .timeout = kNoDeadline}, [&](Context& context) {
        return std::to_string(peak_of_training(context, {.sharding = sharding, .mapped = mapped}));
    });
    // Parameters, gradients and two moments in parts; 2 gradients of units; copied: 2 units.
    const double parts = 4 * kLayers * kUnitMiB / ranks;
    const double expected = parts + (mapped ? 2 : 4) * kUnitMiB;
    const double found = std::stod(processes.words(0));
    CAPTURE(ranks, mapped, expected);
    CHECK(found > expected * 0.95);  // it is what was computed
    CHECK(found < expected * 1.1);
}

#endif
