// A worker for tests of the diagnosis: runs into the stall that its argument names, and stays there until it is killed.
//
// usage: stalling
// tags|small|large|swap|circle|posted|finisher|meeting|stopped|halted|loop|deadline|caught|quit|behind|eat|mismatch|abort|
// hurry|sizes|offers|throws|zero|left|sleeper|rests|choked
//
// small     rank 1 waits for another tag than rank 0 has sent, rank 0 goes on to a barrier; both give up after 2 s
// large     the same with a message that is offered
// posted    rank 1 has an operation under way and computes; the others wait for it
// finisher  the same through a gradient reducer whose own thread waits for the buckets
// meeting   rank 1 does not arrive in a monitored barrier
// stopped   rank 1's process stops itself
// halted    the same, and the others give up after two seconds
// left      the same, and the others shrink the group, go on and end well
// loop      all-reduces until the network ends it, and prints that now and then
// choked    rank 1's process stops itself, and the others send more than the buffers of its sockets take
// rests     all ranks compute for 45 s between two all-reduces
// deadline  as posted, but the others give up after a second
// caught    the same, and they catch the error and compute, too
// quit      the same, and they end as if nothing had happened
// behind    rank 1 arrives four seconds late in an operation that the others gave up after one; they catch the error
// swap      both send, and receive after that
// mismatch  rank 1 passes another count
// abort     rank 1 aborts the group
// sizes     rank 1 receives more than rank 0 has sent, rank 0 goes on to a barrier
// offers    the same with a message that is offered
// throws    rank 1 leaves by an exception while the others wait, and prints the reason when one of them has ended
// zero      rank 1 ends with exit code 0 while the others wait for it
// hurry     as circle, but all give up after a second
// sleeper   rank 1 computes in its third step, the others wait for it; all would end after a notice of preemption
// eat       rank 1 takes memory until it is killed, while the others wait for it

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/system/process_state.hpp"
#include "ddp/ddp.hpp"

namespace {

using namespace std::chrono_literals;

[[noreturn]] void compute() {
    ddp::set_phase("computing");
    for (;;) std::this_thread::sleep_for(1h);
}

/// Waits until every rank has called this, without an operation of a group: a rank that begins late on a busy machine
/// must not look like the cause of what follows.
void meet_in_store(ddp::Context& context) {
    context.store().set("here/" + std::to_string(context.rank()), "yes");
    for (int rank = 0; rank < context.world_size(); ++rank)
        (void)context.store().get("here/" + std::to_string(rank), 1min);
}

void tags(ddp::Context& context) {
    std::vector<float> values(1 << 20);
    const ddp::Buffer buffer = ddp::Buffer(values);
    if (context.rank() == 0) context.world().send(buffer, 1, 1).wait();
    if (context.rank() == 1) context.world().recv(buffer, 0, 2).wait();
    compute();
}

void mistagged(ddp::Context& context, std::size_t count) {
    std::vector<float> values(count);
    const ddp::Buffer buffer = ddp::Buffer(values);
    meet_in_store(context);
    ddp::Work sent;
    if (context.rank() == 0) sent = context.world().send(buffer, 1, 5, {.label = "halo"});
    if (context.rank() == 1) context.world().recv(buffer, 0, 7, {.timeout = 2s}).wait();
    context.world().barrier({.timeout = 2s}).wait();
}

void swap(ddp::Context& context) {
    std::vector<float> values(1 << 20);
    const ddp::Buffer buffer = ddp::Buffer(values);
    const int peer = 1 - context.rank();
    meet_in_store(context);
    context.world().send(buffer, peer, 3, {.timeout = 1s}).wait();
    context.world().recv(buffer, peer, 3).wait();
}

void circle(ddp::Context& context, std::optional<std::chrono::milliseconds> timeout) {
    const auto first = context.world().split(0, context.rank(), "first");
    const auto second = context.world().split(0, context.rank(), "second");
    const ddp::OpOptions options{.timeout = timeout};
    meet_in_store(context);
    (context.rank() == 0 ? first : second)->barrier(options).wait();
    (context.rank() == 0 ? second : first)->barrier(options).wait();
}

void mismatch(ddp::Context& context) {
    std::vector<float> values(context.rank() == 1 ? 11 : 10);
    context.world().all_reduce(values, ddp::ReduceOp::Sum).wait();
}

void sizes(ddp::Context& context, std::size_t count) {
    std::vector<float> values(count + 1);
    const auto part = [&](std::size_t elements) { return ddp::Buffer(std::span(values).first(elements)); };
    ddp::Work sent;
    if (context.rank() == 0) sent = context.world().send(part(count), 1, 5, {.label = "halo"});
    if (context.rank() == 1) context.world().recv(part(count + 1), 0, 5).wait();
    context.world().barrier().wait();
}

std::vector<int> peers;  ///< main() waits for the first of them to end before it reports its own end

void note_peers(ddp::Context& context) {
    int own = ::getpid();
    std::vector<int> pids(static_cast<std::size_t>(context.world_size()));
    context.world().all_gather(own, pids).wait();
    if (context.rank() != 1) return;
    std::erase(pids, own);
    peers = pids;
    fmt::print("leaving\n");
    std::fflush(stdout);
}

void leave(ddp::Context& context, bool by_exception) {
    context.world().barrier().wait();
    if (by_exception) note_peers(context);
    if (context.rank() != 1)
        context.world().barrier().wait();
    else if (by_exception)
        throw std::runtime_error("the loss is not finite");
}

/// Waits until one peer has ended and its agent knows of it. The agent then gives this process only a second. If that
/// is too short on a busy machine it prints "too late".
void wait_for_the_end_of_a_peer() {
    const auto give_up = [](int) {
        constexpr std::string_view kText = "too late\n";
        ::_exit(::write(STDOUT_FILENO, kText.data(), kText.size()) > 0 ? EXIT_FAILURE : 2);
    };
    if (!peers.empty()) ::signal(SIGTERM, give_up);
    const auto has_ended = [](int pid) { return ddprun::process_state(pid) == ddprun::ProcessState::kEnded; };
    while (!peers.empty() && std::ranges::none_of(peers, has_ended)) std::this_thread::sleep_for(1ms);
    if (!peers.empty()) std::this_thread::sleep_for(100ms);
}

void abort(ddp::Context& context) {
    context.world().barrier().wait();
    if (context.rank() == 1) {
        ddp::set_phase("evaluating");
        context.world().abort("loss is NaN");
    }
    context.world().barrier().wait();
}

void posted(ddp::Context& context, std::optional<std::chrono::milliseconds> timeout) {
    float value = 0;
    ddp::Work later;
    if (context.rank() == 1) {
        later = context.world().recv(value, 0, 7);
        ddp::set_phase("computing");
    }
    meet_in_store(context);
    if (context.rank() == 1) compute();
    std::vector<float> sum(1000);
    context.world().all_reduce(sum, ddp::ReduceOp::Sum, {.timeout = timeout}).wait();
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
    compute();  // its bucket is under way and never ends: rank 0 does not get there
}

void meeting(ddp::Context& context) {
    if (context.rank() == 1) compute();
    context.world().monitored_barrier(10min, "save");
}

void stopped(ddp::Context& context, std::optional<std::chrono::milliseconds> timeout) {
    if (context.rank() == 1) {
        fmt::print("stopping {}\n", ::getpid());
        std::fflush(stdout);
    }
    meet_in_store(context);
    if (context.rank() == 1) ::raise(SIGSTOP);
    context.world().barrier({.timeout = timeout}).wait();
}

void left(ddp::Context& context) {
    try {
        stopped(context, 2s);
    } catch (const ddp::Error&) {
        if (context.rank() == 1) throw;
        context.world().shrink(std::vector<int>{1})->barrier().wait();
        fmt::print("rank {} is done\n", context.rank());
    }
}

void loop(ddp::Context& context) {
    std::vector<float> values(1 << 16);
    for (int i = 0;; ++i) {
        context.world().all_reduce(values, ddp::ReduceOp::Sum).wait();
        if (i % 1000 == 10) {
            fmt::print("looping\n");
            std::fflush(stdout);
        }
    }
}

void choked(ddp::Context& context) {
    if (context.rank() == 1) ::raise(SIGSTOP);
    std::vector<float> values(16 << 20);
    context.world().all_reduce(values, ddp::ReduceOp::Sum).wait();
}

void rests(ddp::Context& context) {
    std::vector<float> values(1 << 16);
    for (;;) {
        context.world().all_reduce(values, ddp::ReduceOp::Sum).wait();
        fmt::print("looping\n");
        std::fflush(stdout);
        std::this_thread::sleep_for(45s);
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
        context.world().barrier({.timeout = 1s}).wait();
    } catch (const ddp::Error&) {
        fmt::print("rank {} caught\n", context.rank());
        std::fflush(stdout);
    }
    if (context.rank() == 1) std::this_thread::sleep_for(4s);  // two reports are at least 5 s apart
}

void eat(ddp::Context& context) {
    ddp::set_phase("eating");
    constexpr std::size_t kBite = 8 << 20;
    for (std::vector<std::vector<char>> eaten; context.rank() == 1;) eaten.emplace_back(kBite, 'x');
    context.world().barrier({.timeout = 10min, .label = "meal"}).wait();
}

/// Trains until the notice of a preemption. Rank 1 computes for ever in its third step.
int sleeper(ddp::Context& context) {
    std::vector<float> values(10);
    for (int step = 1; !ddp::agree_to_stop(); ++step) {
        if (context.rank() == 1 && step == 3) compute();
        context.world().all_reduce(values, ddp::ReduceOp::Sum, {.label = "gradients"}).wait();
    }
    return ddp::kPreemptedExitCode;
}

int run(const std::string& what) {
    ddp::Context context = ddp::init_from_env({.backend = ddp::Backend::Native});
    if (what == "tags") tags(context);
    if (what == "small") mistagged(context, 10);
    if (what == "large") mistagged(context, 1 << 20);
    if (what == "swap") swap(context);
    if (what == "circle") circle(context, {});
    if (what == "hurry") circle(context, 1s);
    if (what == "mismatch") mismatch(context);
    if (what == "abort") abort(context);
    if (what == "sizes") sizes(context, 10);
    if (what == "offers") sizes(context, 1 << 20);
    if (what == "throws") leave(context, true);
    if (what == "zero") leave(context, false);
    if (what == "posted") posted(context, {});
    if (what == "finisher") finisher(context);
    if (what == "meeting") meeting(context);
    if (what == "stopped") stopped(context, {});
    if (what == "halted") stopped(context, 2s);
    if (what == "left") left(context);
    if (what == "loop") loop(context);
    if (what == "rests") rests(context);
    if (what == "choked") choked(context);
    if (what == "deadline") posted(context, 1s);
    if (what == "caught") caught(context);
    if (what == "quit") quit(context);
    if (what == "behind") behind(context);
    if (what == "eat") eat(context);
    if (what == "sleeper") return sleeper(context);
    return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    try {
        return run(argv[1]);
    } catch (const std::exception& error) {
        wait_for_the_end_of_a_peer();
        fmt::print(stderr, "{}\n", error.what());
        return EXIT_FAILURE;
    }
}
