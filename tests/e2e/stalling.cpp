// A worker for tests of verdicts: runs into a stall of the kind that it is told, and stays there until it is killed.
//
// usage: stalling tags|circle|posted|finisher|meeting|stopped|halted|loop|deadline|caught|quit|behind|eat
//
// posted    rank 1 has an operation under way and computes; the others wait for it
// finisher  the same through a gradient reducer whose own thread waits for the buckets
// meeting   rank 1 does not come to a monitored barrier
// stopped   rank 1's process stops itself
// halted    the same, and the others give up after two seconds
// loop      all-reduces until the network ends it
// deadline  as posted, but the others give up after a second
// caught    the same, and they catch the error and compute, too
// quit      the same, and they end as if nothing had happened
// behind    rank 1 comes four seconds late to what the others have given up after one, whose error they catch
// eat       rank 1 takes memory until it is killed, while the others wait for it

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "ddp/ddp.hpp"

namespace {

using namespace std::chrono_literals;

[[noreturn]] void compute() {
    ddp::set_phase("computing");
    for (;;) std::this_thread::sleep_for(1h);
}

void tags(ddp::Context& context) {
    std::vector<float> values(1 << 20);
    const ddp::Buffer buffer = ddp::buffer(std::span(values));
    if (context.rank() == 0) context.world().send(buffer, 1, 1).wait();
    if (context.rank() == 1) context.world().recv(buffer, 0, 2).wait();
    compute();
}

void circle(ddp::Context& context) {
    const auto first = context.world().split(0, context.rank(), "first");
    const auto second = context.world().split(0, context.rank(), "second");
    (context.rank() == 0 ? first : second)->barrier().wait();
    (context.rank() == 0 ? second : first)->barrier().wait();
}

void posted(ddp::Context& context, std::chrono::milliseconds timeout) {
    float value = 0;
    ddp::Work later;
    if (context.rank() == 1) later = context.world().recv(ddp::buffer(value), 0, 7);
    if (context.rank() == 1) compute();
    std::vector<float> sum(1000);
    context.world()
        .all_reduce(ddp::buffer(std::span(sum)), ddp::ReduceOp::Sum, {}, {.timeout = timeout, .tag = {}})
        .wait();
}

void finisher(ddp::Context& context) {
    const auto other = context.world().split(0, context.rank(), "other");
    std::vector<ddp::ParamSpec> params;
    for (const char* name : {"a", "b"}) params.push_back({.name = name, .count = 1 << 20});
    ddp::ReducerOptions options;
    options.on_bucket_done = [](const ddp::GradBucket&) {};
    ddp::GradientReducer reducer(context.world(), params, options);
    if (context.rank() == 0) other->barrier().wait();
    reducer.begin_backward();
    reducer.mark_ready(1);
    compute();  // its bucket is under way, and never ends: rank 0 does not come so far
}

void meeting(ddp::Context& context) {
    if (context.rank() == 1) compute();
    context.world().monitored_barrier(10min, "save");
}

void stopped(ddp::Context& context, std::chrono::milliseconds timeout) {
    if (context.rank() == 1) {
        fmt::print("stopping {}\n", ::getpid());
        std::fflush(stdout);
        ::raise(SIGSTOP);
    }
    context.world().barrier({.timeout = timeout, .tag = {}}).wait();
}

void loop(ddp::Context& context) {
    std::vector<float> values(1 << 16);
    for (int i = 0;; ++i) {
        context.world().all_reduce(ddp::buffer(std::span(values)), ddp::ReduceOp::Sum).wait();
        if (i == 10) {
            fmt::print("looping\n");
            std::fflush(stdout);
        }
    }
}

void caught(ddp::Context& context) {
    try {
        posted(context, 1s);
    } catch (const ddp::Error&) {
        fmt::print("caught\n");
        std::fflush(stdout);
        compute();
    }
}

void quit(ddp::Context& context) {
    try {
        posted(context, 1s);
    } catch (const ddp::Error&) {
        fmt::print("caught\n");
    }
}

void behind(ddp::Context& context) {
    context.world().barrier().wait();
    if (context.rank() == 1) std::this_thread::sleep_for(4s);
    try {
        context.world().barrier({.timeout = 1s, .tag = {}}).wait();
    } catch (const ddp::Error&) {
        fmt::print("rank {} caught\n", context.rank());
        std::fflush(stdout);
    }
    if (context.rank() == 1) std::this_thread::sleep_for(4s);  // between two that are told lie 5 s
}

void eat(ddp::Context& context) {
    ddp::set_phase("eating");
    constexpr std::size_t kBite = 8 << 20;
    for (std::vector<std::vector<char>> eaten; context.rank() == 1;) eaten.emplace_back(kBite, 'x');
    context.world().barrier({.timeout = 10min, .tag = "meal"}).wait();
}

int run(const std::string& what) {
    ddp::Context context = ddp::init_from_env({.backend = ddp::Backend::Native});
    if (what == "tags") tags(context);
    if (what == "circle") circle(context);
    if (what == "posted") posted(context, {});
    if (what == "finisher") finisher(context);
    if (what == "meeting") meeting(context);
    if (what == "stopped") stopped(context, {});
    if (what == "halted") stopped(context, 2s);
    if (what == "loop") loop(context);
    if (what == "deadline") posted(context, 1s);
    if (what == "caught") caught(context);
    if (what == "quit") quit(context);
    if (what == "behind") behind(context);
    if (what == "eat") eat(context);
    return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    try {
        return run(argv[1]);
    } catch (const ddp::Error& error) {
        fmt::print(stderr, "{}\n", error.what());
        return EXIT_FAILURE;
    }
}
