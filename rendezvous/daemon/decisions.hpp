#pragma once
// Decisions: composes the daemon's two state machines, the coordinator and the inquiries, by a queue of events. Pure:
// it knows no socket and no clock, so that tests/sim runs the same composition. The Daemon adds what happens and
// performs the actions of each step.

#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/coordinator/coordinator.hpp"
#include "rendezvous/diagnosis/inquiry/inquiries.hpp"

namespace ddprun::daemon {

/// An event names the machine that is stepped by it. Whatever follows from one event bears the same `now`.
using DaemonEvent = std::variant<coordinator::Event, diagnosis::InquiryEvent>;

/// Actions of both machines, except for those that are events of the other machine.
using DaemonAction = std::variant<coordinator::Send, coordinator::Refuse, coordinator::OpenStore,
                                  coordinator::CloseStore, coordinator::Disconnect, coordinator::FinishJob,
                                  diagnosis::ToAgent, diagnosis::ToInspector, diagnosis::Conclusion>;

/// What one step of one machine asks for.
struct DaemonStep {
    std::vector<DaemonAction> actions;  ///< to be performed in this order before the next step
    std::string reason;                 ///< the coordinator's, for the log; may be empty
    std::string inquiry_reason;         ///< the inquiries', for the debug log; may be empty
};

class Decisions {
public:
    explicit Decisions(coordinator::Config config) : job_(std::move(config)) {}

    /// Queues an event behind those that wait: one that happened, or the answer to an action.
    void add(DaemonEvent event) { events_.push_back(std::move(event)); }

    /// Steps the machine that the oldest event is for, and queues what the other machine has to know of it. Returns
    /// nothing when no event waits.
    [[nodiscard]] std::optional<DaemonStep> next();

    [[nodiscard]] const coordinator::State& job() const { return job_; }
    [[nodiscard]] const diagnosis::InquiryState& inquiries() const { return inquiries_; }

private:
    DaemonStep step_coordinator(coordinator::Event event);
    DaemonStep step_inquiries(diagnosis::InquiryEvent event);

    coordinator::State job_;
    diagnosis::InquiryState inquiries_;
    std::deque<DaemonEvent> events_;
};

}  // namespace ddprun::daemon
