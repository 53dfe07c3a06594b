#pragma once
// Inspectors: simulated connections of ddpctl. Each asks a few times, one question at a time, and leaves, now and then
// before it has its answer.

#include <cstdint>
#include <functional>
#include <map>

#include "rendezvous/diagnosis/inquiry/inquiries.hpp"
#include "tests/sim/timeline.hpp"

namespace ddprun::sim {

class Inspectors {
public:
    using ToDaemon = std::function<void(const diagnosis::InquiryHappening&)>;
    Inspectors(Timeline& time, Dice& dice, ToDaemon to_daemon)
        : time_(time), dice_(dice), to_daemon_(std::move(to_daemon)) {}

    void start();
    /// The daemon has sent Inspected.
    void answered(diagnosis::InspectorId id);

private:
    void ask(diagnosis::InspectorId id);
    void leave(diagnosis::InspectorId id);

    Timeline& time_;
    Dice& dice_;
    ToDaemon to_daemon_;
    std::uint64_t started_ = 0;
    std::map<diagnosis::InspectorId, int> questions_left_;  ///< of those that have not left
};

}  // namespace ddprun::sim
