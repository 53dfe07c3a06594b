// A rank for tests of failures: repeats collectives, each in a group of its own, until each has
// failed. stdout: where it can be reached; "running" when all are under way; for each how it ended:
// "COLLECTIVE CODE CULPRIT… | TEXT".
//
// usage: lasting_collectives TIMEOUT_MS INIT_TIMEOUT_MS COLLECTIVE…

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ddp/ddp.hpp"
#include "tests/unit/worker_lib/support/repeated.hpp"

namespace {

void say(const std::string& line) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
}

std::string in_words(const std::string& what, const ddp::Error& error) {
    std::string culprits;
    for (const int rank : error.culprits()) culprits += fmt::format("{} ", rank);
    return fmt::format("{} {} {}| {}", what, static_cast<int>(error.code()), culprits, error.what());
}

void repeat_for_ever(ddp::ProcessGroup& group, const std::string& what, std::atomic<int>& running) {
    constexpr int kUnderWay = 3;
    try {
        ddp::testing::Repeated repeated(group, what);
        for (int i = 0;; ++i) {
            if (i == kUnderWay && --running == 0) say("running");
            repeated.start().wait();
        }
    } catch (const ddp::Error& error) {
        say(in_words(what, error));
    }
}

int run(char** argv) {
    using std::chrono::milliseconds;
    ddp::Context context = ddp::init_from_env({.backend = ddp::Backend::Native,
                                               .timeout = milliseconds(std::stoi(argv[1])),
                                               .init_timeout = milliseconds(std::stoi(argv[2]))});
    const std::string key =
        fmt::format("ddp/{}/of-{}/world/member/{}", context.generation(), context.world_size(), context.rank());
    say("member " + context.store().get(key, milliseconds(1000)));
    std::vector<std::unique_ptr<ddp::ProcessGroup>> groups;
    std::vector<std::thread> threads;
    std::atomic<int> running{0};
    for (char** name = argv + 3; *name != nullptr; ++name, ++running)
        groups.push_back(context.world().split(0, context.rank(), *name));
    for (std::size_t i = 0; i < groups.size(); ++i)
        threads.emplace_back([&, i] { repeat_for_ever(*groups[i], argv[i + 3], running); });
    for (std::thread& thread : threads) thread.join();
    return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 4) return 2;
    try {
        return run(argv);
    } catch (const ddp::Error& error) {
        say(in_words("init", error));
        return EXIT_FAILURE;
    }
}
