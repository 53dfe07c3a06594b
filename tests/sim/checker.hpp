#pragma once
// What must hold after every step of the coordinator, whatever happens to the cluster.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/coordinator/coordinator.hpp"
#include "tests/sim/timeline.hpp"

namespace ddprun::sim {

/// What is really so, which the coordinator can only be told.
struct Truth {
    std::map<coordinator::NodeId, Generation> processes;  ///< of which group a node has processes
    std::map<coordinator::NodeId, Generation> succeeded;  ///< the newest group whose workers all exited with 0 there
    int failures = 0;  ///< workers that failed by themselves, or because their node was cut off
    int signals = 0;   ///< nodes that were told to stop
};

class Checker {
public:
    void after_step(const coordinator::Step& step, const Truth& truth);
    /// The first invariant that did not hold, or empty.
    [[nodiscard]] const std::string& broken() const { return broken_; }
    [[nodiscard]] const std::optional<coordinator::Verdict>& verdict() const { return verdict_; }
    [[nodiscard]] int groups() const { return groups_; }

private:
    void expect(bool holds, const std::string& what);
    void note_losses(const coordinator::State& state);
    void check_stores(const std::vector<coordinator::Action>& actions);
    void check_group(const coordinator::State& state, const std::vector<coordinator::Action>& actions,
                     const Truth& truth);
    void check_ranks(const coordinator::State& state,
                     const std::map<coordinator::NodeId, coordinator::Assignment>& group);
    void check_fence(const std::map<coordinator::NodeId, coordinator::Assignment>& group, Generation generation,
                     const Truth& truth);
    void check_budget(const coordinator::State& state, const Truth& truth);
    void check_end(const coordinator::State& state, const std::vector<coordinator::Action>& actions,
                   const Truth& truth);
    void check_waiting_is_explained(const coordinator::State& state, const std::vector<coordinator::Action>& actions);
    void check_waiting_makes_sense(const coordinator::State& state);

    std::string broken_;
    std::optional<coordinator::Verdict> verdict_;
    std::optional<Generation> open_store_;
    Generation newest_store_{0};
    Generation newest_group_{0};
    int groups_ = 0;
    int restarts_told_ = 0;  ///< to the newest group that took the place of a failed one
    std::map<coordinator::NodeId, int> previous_ranks_;
    std::set<std::pair<coordinator::NodeId, Generation>> lost_with_;  ///< nodes that were lost while they had processes
    std::map<coordinator::NodeId, TimePoint> explained_at_;
    TimePoint previous_now_;
    TimePoint awake_since_;  ///< since when the coordinator has had events without a pause
};

}  // namespace ddprun::sim
