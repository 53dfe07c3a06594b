#pragma once
// A worker group for tests: events go in, actions come out. Node 1 of 2.

#include <chrono>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "agent/group/worker_group.hpp"

namespace group_test {

using namespace ddprun;
using namespace ddprun::agent;
using namespace ddprun::agent::worker_group;
using namespace ddprun::protocol;
using namespace std::chrono_literals;
using Actions = std::vector<Action>;

inline constexpr TimePoint kStart{1000s};
inline constexpr auto kGrace = 30s;

inline ExitStatus exited(int code) { return {ExitStatus::Kind::kExited, code, false}; }
inline ExitStatus killed_by(int signal) { return {ExitStatus::Kind::kSignaled, signal, false}; }

inline Assignment assignment(int generation) {
    Assignment a;
    a.generation = Generation{generation};
    a.node_rank = NodeRank{1};
    a.node_count = 2;
    a.rank_base = 2;
    a.world_size = 4;
    a.master_addr = "10.0.0.7";
    a.master_port = 1234;
    return a;
}

inline Verdict verdict(Outcome outcome, int exit_code) {
    Verdict v;
    v.outcome = outcome;
    v.exit_code = exit_code;
    return v;
}

/// A worker group that takes events; keeps the latest step.
struct Group {
    State state;
    Actions actions;
    std::string reason;
    std::optional<TimePoint> reason_until;
    bool outcome_follows = false;
    bool supersedes_reasons = false;
    TimePoint now = kStart;

    explicit Group(int slots = 2) {
        state.grace = kGrace;
        state.slots = slots;
    }
    Group& operator<<(const Happening& what) {
        Step taken = step(state, {now, what});
        state = std::move(taken.next);
        actions = std::move(taken.actions);
        reason = std::move(taken.reason);
        reason_until = taken.reason_until;
        outcome_follows = taken.outcome_follows;
        supersedes_reasons = taken.supersedes_reasons;
        return *this;
    }
    Group& after(Duration time) {
        now += time;
        return *this;
    }
    [[nodiscard]] bool finished_with(int exit_code) const {
        const auto* finish = actions.empty() ? nullptr : std::get_if<Finish>(&actions.back());
        return state.phase == Phase::kDone && finish != nullptr && finish->exit_code == exit_code;
    }
};

inline Group running(int slots = 2) { return Group(slots) << Assigned{assignment(1)}; }

inline Group stopping_after_failure() { return running() << WorkerExited{LocalRank{0}, killed_by(SIGSEGV)}; }

}  // namespace group_test
