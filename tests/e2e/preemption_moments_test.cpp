// A notice of preemption at each kind of moment of a training: as it starts, computes, all-reduces, evaluates, saves.

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/system/process_state.hpp"
#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"
#include "tests/e2e/training.hpp"

namespace {

using e2e::eventually;
using e2e::Seconds;
using Moment = std::chrono::steady_clock::time_point;  // the clock of all processes of this machine

constexpr int kRanks = 4;
const std::vector<std::string> kKinds{"start", "step", "collective", "evaluation", "checkpoint"};

/// One line of preemptible.cpp.
struct Entry {
    Moment at;
    std::string phase;
    int step = 0;
};
using PhaseLog = std::vector<Entry>;

PhaseLog read_phases(const std::filesystem::path& file) {
    PhaseLog log;
    std::istringstream lines(std::filesystem::exists(file) ? e2e::read_file(file) : "");
    std::int64_t nanoseconds = 0;
    for (Entry entry; lines >> nanoseconds >> entry.phase >> entry.step;) {
        entry.at = Moment(std::chrono::nanoseconds(nanoseconds));
        log.push_back(entry);
    }
    std::ranges::stable_sort(log, {}, &Entry::at);  // two threads have written it
    return log;
}

/// Returns the kind of moment at which a rank was then.
std::string kind_at(const PhaseLog& log, Moment when) {
    std::string kind = "start";
    for (const Entry& entry : log)
        if (entry.at <= when && entry.phase != "notice") kind = entry.phase;
    return kind == "agreement" ? "step" : kind;
}

/// Returns the first entry of this phase; fails the test if there is none.
const Entry& first(const PhaseLog& log, const std::string& phase) {
    const auto found = std::ranges::find(log, phase, &Entry::phase);
    INFO("phase " << phase);
    REQUIRE(found != log.end());
    return *found;
}

/// Returns the longest time from the begin of a step to its end, with evaluation and checkpoint.
Seconds longest_step(const PhaseLog& log) {
    Seconds longest{};
    Moment began;
    for (const Entry& entry : log) {
        if (entry.phase == "step") began = entry.at;
        if (entry.phase == "agreement") longest = std::max<Seconds>(longest, entry.at - began);
    }
    return longest;
}

/// Returns how long the rank saved after it had been to stop. It needs no time where the step saves anyway.
Seconds last_save(const PhaseLog& log) {
    const auto saved = std::ranges::find(log, "stop", &Entry::phase);
    return saved != log.end() && (saved - 1)->phase == "checkpoint" ? Seconds(saved->at - (saved - 1)->at) : Seconds(0);
}

/// One start of the training, with the notice that ends it.
struct Preemption {
    Moment sent;
    std::vector<PhaseLog> ranks = {};
    ddprun::ExitStatus status = {};
    std::string text = {};  ///< what the job has printed

    [[nodiscard]] std::string kind() const { return kind_at(ranks[0], sent); }
    /// Returns when the last rank could see the notice.
    [[nodiscard]] Moment seen() const {
        Moment last;
        for (const PhaseLog& log : ranks) last = std::max(last, first(log, "notice").at);
        return last;
    }
    [[nodiscard]] std::string describe() const {
        std::string all = text;
        for (const PhaseLog& log : ranks) {
            all += "rank\n";
            for (const Entry& entry : log)
                all += fmt::format("  {:+.3f} {} {}\n", Seconds(entry.at - sent).count(), entry.phase, entry.step);
        }
        return all;
    }
};

/// Waits for any moment, or one of `kind` if that is not empty, and gives an agent notice. Returns when.
Moment notice(const e2e::Sandbox& sandbox, const e2e::Process& job, const std::filesystem::path& logs,
              const std::string& kind, std::mt19937& dice) {
    REQUIRE(eventually(Seconds(20), [&] { return sandbox.pids("ddprund").size() == 1; }));
    const auto is_there = [&](std::size_t times) {
        const PhaseLog log = read_phases(logs / "0");
        const auto so_often = static_cast<std::size_t>(std::ranges::count(log, kind, &Entry::phase));
        return so_often >= times && log.back().phase == kind;
    };
    const auto find_agent = [&, rank = static_cast<int>(dice() % kRanks)] {
        const auto worker = e2e::worker(sandbox, rank, "preemptible");
        return worker ? ddprun::parent_of(*worker) : 0;
    };
    const bool at_start = kind == "start" || (kind.empty() && dice() % 5 == 0);  // else it is hit too seldom
    pid_t agent = 0;
    if (kind.empty() || at_start) {  // there is nothing to wait for
        std::this_thread::sleep_for(std::chrono::milliseconds(dice() % (at_start ? 100 : 1'500)));
        agent = find_agent();
    } else {  // the search takes longer on a busy machine than a moment of this kind lasts
        REQUIRE(eventually(Seconds(30), [&] { return (agent = find_agent()) > 1; }));
        REQUIRE(eventually(Seconds(30), [&, times = dice() % 2 + 1] { return is_there(times); }));
    }
    const Moment now = std::chrono::steady_clock::now();
    REQUIRE(::kill(agent > 1 ? agent : job.pid(), SIGUSR1) == 0);
    return now;
}

Preemption preempt(const e2e::Sandbox& sandbox, const std::string& name, const std::string& kind, std::mt19937& dice) {
    const auto logs = sandbox.path() / name;
    std::filesystem::create_directory(logs);
    e2e::Process job(
        sandbox, {.argv = {(e2e::bin() / "ddprun").string(), "--nnodes", "2", "--local-nodes", "--nproc-per-node", "2",
                           PREEMPTIBLE, (sandbox.path() / "saved").string(), logs.string()}});
    Preemption run{.sent = notice(sandbox, job, logs, kind, dice)};
    run.status = job.wait(Seconds(60));
    run.text = job.out() + job.err();
    for (int rank = 0; rank < kRanks; ++rank) run.ranks.push_back(read_phases(logs / std::to_string(rank)));
    return run;
}

/// Expects that a rank begins one step at most after every agent has written the notice: one that was behind the rank
/// whose next call all stop in. The rank ahead begins none, unless its first step has not begun.
void check_steps(const Preemption& run) {
    const Moment seen = run.seen();
    for (const PhaseLog& log : run.ranks)
        CHECK(std::ranges::count_if(log, [&](const Entry& e) { return e.phase == "step" && e.at > seen; }) <= 1);
}

/// Returns how long the workers took from the notice, or from their first step, to their end; and how long they may
/// take: one step and the save, as this run has measured them. Beside that the notice comes through agents and daemon,
/// which is measured, too; the agreement takes about the same time again; and the processes end.
std::pair<Seconds, Seconds> times(const Preemption& run) {
    constexpr Seconds kEnds{0.2};
    Moment began = run.sent;  // of workers that start, their first step
    Moment ended;
    Seconds step{};
    Seconds save{};
    for (const PhaseLog& log : run.ranks) {
        began = std::max(began, first(log, "step").at);
        ended = std::max(ended, first(log, "end").at);
        step = std::max(step, longest_step(log));
        save = std::max(save, last_save(log));
    }
    const Seconds delay = std::max<Seconds>(run.seen() - run.sent, Seconds(0));
    const bool starts = run.kind() == "start";
    return {ended - began, step + save + (starts ? Seconds(0) : 2 * delay) + kEnds};
}

}  // namespace

TEST_CASE("at each kind of moment a notice ends all ranks in one step, which is saved", "[e2e]") {
    const e2e::Sandbox sandbox("moments");
    const unsigned seed = std::random_device{}();
    std::mt19937 dice(seed);
    const char* const random_runs = std::getenv("DDPRUN_PREEMPTIONS");  // without it: each kind is aimed at
    const int runs = random_runs != nullptr ? std::atoi(random_runs) : 3 * static_cast<int>(kKinds.size());
    std::map<std::string, int> kinds;
    int last_step = 0;
    double closest = 0;
    for (int number = 1; number <= runs; ++number) {
        const auto missing = std::ranges::find_if(kKinds, [&](const auto& kind) { return kinds[kind] == 0; });
        if (random_runs == nullptr && missing == kKinds.end()) break;
        const std::string aim = random_runs == nullptr ? *missing : "";
        const Preemption run = preempt(sandbox, fmt::format("run-{}", number), aim, dice);
        CAPTURE(seed, number, aim, run.describe());
        REQUIRE(run.status.exit_code() == 75);
        ++kinds[run.kind()];
        const int stopped = first(run.ranks[0], "end").step;
        for (const PhaseLog& log : run.ranks) {
            CHECK(first(log, "step").step == last_step + 1);
            CHECK(first(log, "end").step == stopped);
        }
        CHECK(stopped > last_step);
        CHECK(std::filesystem::exists(sandbox.path() / "saved" / fmt::format("step-{}.safetensors", stopped)));
        check_steps(run);
        const auto [taken, allowed] = times(run);
        if (random_runs != nullptr) CHECK(taken.count() < allowed.count());  // a short run beside others is not timed
        closest = std::max(closest, taken / allowed);
        last_step = stopped;
    }
    for (const std::string& kind : kKinds) {
        INFO("kind of moment: " << kind);
        CHECK(kinds[kind] > 0);
        if (random_runs != nullptr) fmt::print("{} notices in phase {}\n", kinds[kind], kind);
    }
    if (random_runs != nullptr) fmt::print("at most {:.0f} % of the time allowed\n", 100 * closest);
    CHECK(kinds.size() == kKinds.size());
    CHECK(sandbox.leftovers() == "");
}
