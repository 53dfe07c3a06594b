#pragma once
// InquiryChecker: what must hold after every step of the daemon's two machines about flight records and diagnoses.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/daemon/decisions.hpp"
#include "tests/sim/timeline.hpp"

namespace ddprun::sim {

class InquiryChecker {
public:
    /// An inspector asks; before the event is handled.
    void asked(diagnosis::InspectorId inspector, TimePoint now);
    void left(diagnosis::InspectorId inspector) { asked_at_.erase(inspector); }

    /// `ticked`: the event that was handled, with all that followed from it, was a tick.
    void after_event(const daemon::Decisions& decisions, const std::vector<daemon::DaemonAction>& actions,
                     TimePoint now, bool ticked);

    /// The first invariant that did not hold, or empty.
    [[nodiscard]] const std::string& broken() const { return broken_; }
    [[nodiscard]] int requests() const { return static_cast<int>(requested_at_.size()); }
    [[nodiscard]] int answers() const { return answers_; }
    [[nodiscard]] int diagnoses() const { return diagnoses_; }
    [[nodiscard]] int conclusions() const { return conclusions_; }

private:
    void expect(bool holds, const std::string& what);
    void check_recipient(const coordinator::State& job, const diagnosis::ToAgent& action, TimePoint now);
    void check_answer(const diagnosis::ToInspector& action);
    void check_diagnosis(const coordinator::State& job);
    void check_deadlines(const daemon::Decisions& decisions);

    std::string broken_;
    std::map<std::uint64_t, TimePoint> requested_at_;       ///< of each request
    std::map<diagnosis::InspectorId, TimePoint> asked_at_;  ///< of each inspector that has no answer yet
    std::optional<TimePoint> diagnosis_pending_since_;
    int answers_ = 0;
    int diagnoses_ = 0;
    int conclusions_ = 0;
};

}  // namespace ddprun::sim
