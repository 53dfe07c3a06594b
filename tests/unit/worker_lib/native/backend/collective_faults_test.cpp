// A rank that is killed, and one that is stopped, in the middle of each collective, and of sends and receives: the
// survivors get an error in time that names the rank, and nothing of theirs is left. In one node and over two, with
// each algorithm between them.
//
// DDP_FAULT_ROUNDS=100 strikes as often, each time at another moment, also in scenes that are left out otherwise, and
// prints for each scene how often all was right. Scenes can be chosen:
//
//     DDP_FAULT_ROUNDS=100 unit_native_processes "a rank killed*" -c "rank 1 of nodes of 2 2"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <deque>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.hpp"
#include "tests/machine_pauses.hpp"
#include "tests/unit/worker_lib/support/fault_rounds.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "tests/unit/worker_lib/support/network_rules.hpp"
#include "tests/unit/worker_lib/support/processes.hpp"
#include "tests/unit/worker_lib/support/repeated.hpp"

using namespace ddp;
using namespace ddp::testing;

namespace {

const std::vector<std::string> kAll{"all_reduce", "small all_reduce", "barrier",      "broadcast",
                                    "reduce",     "reduce_scatter",   "all_gather_v", "gather_v",
                                    "scatter_v",  "all_to_all_v",     "p2p"};
const std::vector<std::string> kReductions{"all_reduce", "small all_reduce"};

struct Scene {
    std::vector<int> shape;
    int victim = 0;
    bool always = false;              ///< not only in many rounds
    const char* rules = nullptr;      ///< DDPRUN_ALLREDUCE
    std::vector<std::string> only{};  ///< these operations

    [[nodiscard]] std::string name() const {
        return fmt::format("rank {} of nodes of {}{}{}", victim, fmt::join(shape, " "), rules ? ", " : "",
                           rules ? rules : "");
    }
    [[nodiscard]] const std::vector<std::string>& operations() const {
        return !only.empty() ? only : rules ? kReductions : kAll;
    }
};

/// Rank 2 of {2, 2} leads its node; rank 3 of {1, 3} talks to no other node; while rank 4 of {2, 2, 1} is missed by the
/// root, the root takes nothing from others.
const std::vector<Scene> kScenes{{{3}, 1, true},
                                 {{3}, 0},
                                 {{2, 2}, 0},
                                 {{2, 2}, 1, true},
                                 {{2, 2}, 2, true},
                                 {{1, 3}, 3, true},
                                 {{1, 1}, 1},
                                 {{1, 1, 1}, 0, true},
                                 {{1, 1, 1}, 1},
                                 {{2, 2, 1}, 4, true, nullptr, {"large gather_v"}},
                                 {{2, 2}, 3, true, "direct:0-max"},
                                 {{2, 2}, 3, true, "rd:0-max"},
                                 {{2, 2}, 3, true, "scatter:0-max"},
                                 {{2, 2}, 0, false, "direct:0-max"},
                                 {{2, 2}, 0, false, "rd:0-max"},
                                 {{2, 2}, 0, false, "scatter:0-max"}};

/// Runs until an operation fails; returns "<when> <code> <culprits…> | <text>".
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

/// Runs until the test has set "enough"; returns "done", or the error.
std::string repeat_until_enough(Context& context, const std::string& what) {
    Repeated repeated(context.world(), what);
    std::int32_t enough = 0;
    try {
        for (int i = 0; enough == 0; ++i) {
            if (i == 3) context.store().set("running/" + std::to_string(context.rank()), "yes");
            repeated.start().wait();
            if (context.rank() == 0) enough = context.store().try_get("enough", milliseconds(0)) ? 1 : 0;
            context.world().broadcast(enough, 0).wait();
        }
    } catch (const Error& error) {
        return error.what();
    }
    return "done";
}

/// A world whose ranks are all in the middle of `body`.
struct Running {
    Running(const LocalWorld& world, const Processes::Body& body, std::chrono::microseconds delay = {}) {
        constexpr int kTries = 5;  // a machine that is too busy for the deadline shows nothing: once more
        for (int tries = 1;; ++tries) {
            processes.emplace(world, body);
            const bool running = all_are_running(world.size());
            std::this_thread::sleep_for(delay);
            const std::string ended = words_of_one_that_ended(world.size());
            if (running && ended.empty()) break;
            if (tries == kTries) throw std::runtime_error("failed before anything was broken: " + ended);
        }
    }
    [[nodiscard]] bool all_are_running(int size) const {
        for (int rank = 0; rank < size; ++rank) {
            while (!processes->store().try_get("running/" + std::to_string(rank), milliseconds(100))) {
                if (!words_of_one_that_ended(size).empty()) return false;
            }
        }
        return true;
    }
    [[nodiscard]] std::string words_of_one_that_ended(int size) const {
        for (int rank = 0; rank < size; ++rank) {
            if (const auto words = read_file(processes->words_of(static_cast<std::size_t>(rank))); !words.empty())
                return words;
        }
        return "";
    }

    std::optional<Processes> processes;
};

/// A world in which the victim was hit while it ran `what`, `delay` after all were under way.
struct Struck : Running {
    Struck(const LocalWorld& world, const std::string& what, int victim, int signal, std::chrono::microseconds delay)
        : Running(
              world, [what](Context& context) { return repeat_for_ever(context, what); }, delay),
          when(now_ms()) {
        processes->kill(static_cast<std::size_t>(victim), signal);
    }

    const std::int64_t when;
};

struct Expected {
    ErrorCode code = ErrorCode::PeerLost;
    std::int64_t least_ms = 0;
    std::int64_t usual_ms = 1000;
    std::int64_t most_ms = 10'000;  ///< on a busy machine, its pauses not counted; far less than without the news
};

/// How often all survivors reported what they should, of how many times.
struct Tally {
    int right = 0;
    int all = 0;
    int slow = 0;  ///< reported later than usual
    std::int64_t latest_ms = 0;

    /// `pauses` has been measuring since the victim was hit.
    void check(Struck& struck, const LocalWorld& world, const std::string& what, int victim, const Expected& expected,
               const MachinePauses& pauses) {
        bool good = true;
        bool usual = true;
        for (int rank = 0; rank < world.size(); ++rank) {
            if (rank == victim) continue;
            const std::string words = struck.processes->words(static_cast<std::size_t>(rank));
            std::int64_t told = 0;
            std::istringstream(words) >> told;
            const std::int64_t after = told - struck.when;
            const auto said = [&](const std::string& text) { return words.find(text) != std::string::npos; };
            const bool named = said(fmt::format(" {} {} | ", static_cast<int>(expected.code), victim)) &&
                               said(fmt::format("rank {}", victim)) && said(what.substr(what.find(' ') + 1));
            const bool in_time = after >= expected.least_ms && after < expected.most_ms + pauses.sum().count();
            const bool clean = !said("descriptors left") && !said("memory left");
            INFO(what << ", rank " << rank << ", after " << after << " ms, in which the machine stood still for "
                      << pauses.sum().count() << " ms: " << words);
            CHECK(named);
            CHECK(in_time);
            CHECK(clean);
            good = good && named && in_time && clean;
            usual = usual && after < expected.usual_ms;
            latest_ms = std::max(latest_ms, after);
        }
        right += good ? 1 : 0;
        slow += usual ? 0 : 1;
        ++all;
    }
    /// Now and then a machine stands still for a second; most of the time it does not.
    void check_pace() const { CHECK(slow <= std::max(1, all / 2)); }
    void print(const char* how, const Scene& scene) const {
        if (fault_rounds() == 1) return;
        std::printf("%s, %s: %d of %d right, the last reported after %lld ms\n", how, scene.name().c_str(), right, all,
                    static_cast<long long>(latest_ms));
        std::fflush(stdout);
    }
};

}  // namespace

TEST_CASE("a rank killed inside any collective, send or receive is named by all others within a second",
          "[faults][unit]") {
    for (const Scene& scene : kScenes) {
        if (!scene.always && fault_rounds() == 1) continue;
        DYNAMIC_SECTION(scene.name()) {
            std::optional<Rules> rules;
            if (scene.rules) rules.emplace(scene.rules);
            const LocalWorld world{.ranks_per_node = scene.shape};
            Tally tally;
            for (int round = 0; round < fault_rounds(); ++round) {
                for (const std::string& what : scene.operations()) {
                    Struck struck(world, what, scene.victim, SIGKILL, delay_of(round));
                    const MachinePauses pauses;  // its thread begins after the ranks were forked
                    tally.check(struck, world, what, scene.victim, {}, pauses);
                }
            }
            tally.check_pace();
            tally.print("killed", scene);
        }
    }
}

TEST_CASE("a rank stopped inside any collective, send or receive is named by all others at the deadline",
          "[faults][unit]") {
    constexpr std::int64_t kDeadlineMs =
        1500;  // from the beginning of the operation, and what a busy machine takes for one is less
    const Expected expected{.code = ErrorCode::Timeout, .least_ms = kDeadlineMs - 500, .usual_ms = kDeadlineMs + 1800};
    for (const Scene& scene : kScenes) {
        if (!scene.always && fault_rounds() == 1) continue;
        DYNAMIC_SECTION(scene.name()) {
            std::optional<Rules> rules;
            if (scene.rules) rules.emplace(scene.rules);
            const LocalWorld world{.ranks_per_node = scene.shape, .timeout = milliseconds(kDeadlineMs)};
            Tally tally;
            for (int round = 0; round < fault_rounds(); ++round) {
                std::deque<Struck> all;  // they wait for their deadlines at the same time
                for (const std::string& what : scene.operations())
                    all.emplace_back(world, what, scene.victim, SIGSTOP, delay_of(round));
                const MachinePauses pauses;
                for (std::size_t i = 0; i < all.size(); ++i)
                    tally.check(all[i], world, scene.operations()[i], scene.victim, expected, pauses);
            }
            tally.check_pace();
            tally.print("stopped", scene);
        }
    }
}

namespace {

/// Stops all ranks of worlds of several shapes for longer than the deadline, and lets them go on one after the other;
/// the last one not at all if `one_stays`.
void stand_still(bool one_stays) {
    const LocalWorld world{.ranks_per_node = GENERATE(values<std::vector<int>>({{3}, {2, 2}, {1, 1, 1}})),
                           .timeout = milliseconds(5000)};
    const int last = world.size() - 1;
    for (int round = 0; round < fault_rounds(); ++round) {
        std::deque<Running> all;
        for (const std::string& what : kAll)
            all.emplace_back(world, [what](Context& context) { return repeat_until_enough(context, what); });
        std::this_thread::sleep_for(delay_of(round));
        const auto signal_all = [&](int rank, int signal) {
            for (Running& one : all) one.processes->kill(static_cast<std::size_t>(rank), signal);
        };
        for (int rank = 0; rank < world.size(); ++rank) signal_all(rank, SIGSTOP);
        std::this_thread::sleep_for(world.timeout + milliseconds(1000));  // the scene itself is one of time
        for (int i = 0; i < world.size() - (one_stays ? 1 : 0); ++i) {
            // The neighbour of the one that stays goes first: later it would be late itself.
            signal_all(one_stays ? last - 1 - i : i, SIGCONT);
            std::this_thread::sleep_for(milliseconds(300));
        }
        if (!one_stays) {
            for (Running& one : all) one.processes->store().set("enough", "yes");
        }
        for (std::size_t i = 0; i < all.size(); ++i) {
            for (int rank = 0; rank < world.size(); ++rank) {
                if (one_stays && rank == last) continue;
                INFO(kAll[i] << ", rank " << rank);
                const std::string words = all[i].processes->words(static_cast<std::size_t>(rank));
                if (one_stays) {
                    CHECK_THAT(words, Catch::Contains(fmt::format("waited until its deadline for rank {} (", last)));
                } else {
                    CHECK(words == "done");
                }
            }
        }
    }
}

}  // namespace

TEST_CASE("ranks that all stand still over a deadline, and go on one after the other, go on well", "[faults][unit]") {
    stand_still(false);
}

TEST_CASE("of ranks that all stand still the others name the one that does not go on", "[faults][unit]") {
    stand_still(true);
}
