// A rank that is killed, and one that is stopped, in the middle of each collective that has two buffers: the survivors
// are told in time and told who, and nothing of theirs is left. In one node and over two.

#include <array>
#include <csignal>
#include <deque>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/local_world.hpp"
#include "tests/unit/worker_lib/processes.hpp"
#include "tests/unit/worker_lib/repeated.hpp"

using namespace ddp;
using namespace ddp::testing;

namespace {

const std::vector<std::string> kCollectives{"reduce",   "reduce_scatter", "all_gather_v",
                                            "gather_v", "scatter_v",      "all_to_all_v"};

/// Until something breaks: "<when> <code> <culprits…> | <text>".
std::string repeat_for_ever(Context& context, const std::string& what) {
    Repeated repeated(context.world(), what);
    try {
        for (int i = 0;; ++i) {
            if (i == 3) context.store().set("running/" + std::to_string(context.rank()), "yes");
            repeated.start().wait();
        }
    } catch (const Error& error) {
        std::string words = std::to_string(now_ms()) + " " + std::to_string(static_cast<int>(error.code())) + " ";
        for (const int rank : error.culprits()) words += std::to_string(rank) + " ";
        return words + "| " + error.what();
    }
}

struct Scene {
    std::vector<int> shape;
    int victim;
};

/// Rank 2 of {2, 2} leads its node; rank 3 of {1, 3} talks to no other node.
const std::vector<Scene> kScenes{{{3}, 1}, {{2, 2}, 1}, {{2, 2}, 2}, {{1, 3}, 3}};

/// A world in which the victim was hit while it ran `what`.
struct Struck {
    Struck(const LocalWorld& world, const std::string& what, int victim, int signal)
        : processes(world, [what](Context& context) { return repeat_for_ever(context, what); }) {
        for (int rank = 0; rank < world.size(); ++rank) processes.wait_until_running(rank);
        when = now_ms();
        processes.kill(static_cast<std::size_t>(victim), signal);
    }
    Processes processes;
    std::int64_t when = 0;
};

void check_survivors(Struck& struck, const LocalWorld& world, const std::string& what, int victim, ErrorCode code,
                     std::int64_t within_ms) {
    for (int rank = 0; rank < world.size(); ++rank) {
        if (rank == victim) continue;
        const std::string words = struck.processes.words(static_cast<std::size_t>(rank));
        INFO(what << ", rank " << rank << ": " << words);
        const std::string name = std::to_string(victim);
        CHECK_THAT(words, Catch::Contains(" " + std::to_string(static_cast<int>(code)) + " " + name + " | ") &&
                              Catch::Contains("rank " + name) && Catch::Contains(" " + what + " ") &&
                              !Catch::Contains(" left"));
        std::int64_t told = 0;
        std::istringstream(words) >> told;
        CHECK(told - struck.when < within_ms);
    }
}

}  // namespace

TEST_CASE("a rank killed inside any collective is named by all others within a second", "[native][unit]") {
    const auto scene = GENERATE(from_range(kScenes));
    const LocalWorld world{.ranks_per_node = scene.shape};
    CAPTURE(scene.shape.size(), scene.shape[0], scene.victim);
    for (const std::string& what : kCollectives) {
        Struck struck(world, what, scene.victim, SIGKILL);
        check_survivors(struck, world, what, scene.victim, ErrorCode::PeerLost, 1000);
    }
}

TEST_CASE("a rank stopped inside any collective is named by all others at the deadline", "[native][unit]") {
    const auto scene = GENERATE(from_range(kScenes));
    const LocalWorld world{.ranks_per_node = scene.shape, .timeout = milliseconds(700)};
    CAPTURE(scene.shape.size(), scene.shape[0], scene.victim);
    std::deque<Struck> all;  // they wait for their deadlines at the same time
    for (const std::string& what : kCollectives) all.emplace_back(world, what, scene.victim, SIGSTOP);
    for (std::size_t i = 0; i < all.size(); ++i) {
        check_survivors(all[i], world, kCollectives[i], scene.victim, ErrorCode::Timeout, 2000);
    }
}
