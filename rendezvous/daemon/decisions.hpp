#pragma once
// Decisions: composes the daemon's two state machines, the coordinator and the inquiries, by a queue of events. Pure:
// it knows no socket and no clock, so that tests/sim runs the same composition. The Daemon adds events and performs the
// actions of each step.

#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/coordinator/coordinator.hpp"
#include "rendezvous/diagnosis/inquiry/inquiries.hpp"

namespace ddprun::daemon {

/// What happened, for one of the two machines.
using DaemonHappening = std::variant<coordinator::Happening, diagnosis::InquiryHappening>;

/// Actions of both machines, except for those that are events of the other machine.
using DaemonAction = std::variant<coordinator::Send, coordinator::Refuse, coordinator::Reply, coordinator::OpenStore,
                                  coordinator::CloseStore, coordinator::Disconnect, coordinator::EndDaemon,
                                  diagnosis::ToAgent, diagnosis::ToInspector, diagnosis::Conclusion>;

/// The result of one step of one machine.
struct DaemonStep {
    std::vector<DaemonAction> actions;  ///< to be performed in this order before the next step
    std::string reason;                 ///< the coordinator's, for the log; may be empty
    std::string inquiry_reason;         ///< the inquiries', for the debug log; may be empty
};

class Decisions {
public:
    explicit Decisions(coordinator::Config config) : job_(std::move(config)) {}

    /// Appends an event to the queue.
    void add(DaemonHappening what, TimePoint now) { events_.push_back({now, std::move(what)}); }
    /// Appends what follows from the newest step: it has the time of the event that was stepped.
    void add_follower(DaemonHappening what) { add(std::move(what), now_); }

    /// Steps the machine that the oldest event belongs to, and queues the events that follow for the other machine.
    /// Returns nothing when the queue is empty.
    [[nodiscard]] std::optional<DaemonStep> next();

    [[nodiscard]] const coordinator::State& job() const { return job_; }
    [[nodiscard]] const diagnosis::InquiryState& inquiries() const { return inquiries_; }

    /// A decision of the coordinator and its reason.
    struct Reason {
        TimePoint at;
        std::string text;
    };
    /// Returns the newest kMaxDecisions, oldest first.
    [[nodiscard]] const std::deque<Reason>& reasons() const { return reasons_; }

private:
    struct Event {
        TimePoint now;
        DaemonHappening what;
    };
    DaemonStep step_coordinator(coordinator::Happening what);
    DaemonStep step_inquiries(diagnosis::InquiryHappening what);

    coordinator::State job_;
    diagnosis::InquiryState inquiries_;
    std::deque<Event> events_;
    std::deque<Reason> reasons_;
    TimePoint now_;  ///< of the event that was stepped last
};

}  // namespace ddprun::daemon
