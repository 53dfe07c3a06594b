#pragma once
// The inquiries decide which flight records the daemon requests from the agents, when, and what happens with the
// diagnosis. They are the daemon's second state machine beside the coordinator, and as pure: time arrives in events,
// effects leave as actions. Each step takes one event, after the coordinator has handled the input behind it.
//
// step() reads the coordinator's state by reference, at the moment of the step. Events are plain values that can be
// queued, so they cannot hold the reference; a snapshot in each event would copy 1,000 nodes for every record that
// arrives and ten times a second for the ticks.

#include <string>
#include <variant>
#include <vector>

#include "common/clock.hpp"
#include "rendezvous/coordinator/state.hpp"
#include "rendezvous/diagnosis/diagnosis.hpp"
#include "rendezvous/diagnosis/inquiry/state.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::diagnosis {

// ---- events: what happened

/// An agent has sent Stalled: an operation of one of its workers takes too long, or has failed by its deadline.
struct StallReported {
    NodeId node;
    Stalled report;
};
/// An agent has reported the failure of a worker; the coordinator has decided whether it is the cause.
struct FailureReported {};
/// An agent has sent the flight record of one worker.
struct RecordReceived {
    NodeId node;
    RecordReply record;
};
/// An inspector (a connection of ddpctl) asks for flight records. Precondition: is_open() is false for it.
struct InspectionRequested {
    InspectorId inspector{};
    Inspect request;
};
/// The connection of an inspector has ended. It gets no answer any more.
struct InspectorLeft {
    InspectorId inspector{};
};
/// Time passes; expected with each coordinator::Tick.
struct InquiryTick {};
using InquiryHappening =
    std::variant<StallReported, FailureReported, RecordReceived, InspectionRequested, InspectorLeft, InquiryTick>;

/// As coordinator::Event.
struct InquiryEvent {
    TimePoint now;
    InquiryHappening what;
};

// ---- actions: what to do, in order

/// Send to the agent of `node`.
struct ToAgent {
    NodeId node;
    DaemonMessage message;
    friend bool operator==(const ToAgent&, const ToAgent&) = default;
};
/// Send to the inspector. Inspected is the last message of each answer.
struct ToInspector {
    InspectorId inspector{};
    DaemonMessage message;
    friend bool operator==(const ToInspector&, const ToInspector&) = default;
};
/// Log the verdict on a stall. Every agent gets it as well, by a ToAgent of its own.
struct Conclusion {
    std::string text;
    friend bool operator==(const Conclusion&, const Conclusion&) = default;
};
/// Report to the coordinator: a worker has failed, and DiagnosisFinished follows within kFailureTimeout.
struct DiagnosisStarted {
    Generation generation{};
    friend bool operator==(const DiagnosisStarted&, const DiagnosisStarted&) = default;
};
/// Report the diagnosis to the coordinator, as coordinator::Diagnosed.
struct DiagnosisFinished {
    Generation generation{};
    Diagnosis diagnosis;
    friend bool operator==(const DiagnosisFinished&, const DiagnosisFinished&) = default;
};
using InquiryAction = std::variant<ToAgent, ToInspector, Conclusion, DiagnosisStarted, DiagnosisFinished>;
using InquiryActions = std::vector<InquiryAction>;

// ---- the function

/// The result of one event.
struct InquiryStep {
    InquiryState next;
    InquiryActions actions;
    std::string reason;  ///< one line for the log, or empty when nothing was decided
};

/// Returns the next state and the actions that `event` causes. `job`: the coordinator's state after it has handled
/// the same input.
[[nodiscard]] InquiryStep step(InquiryState state, const coordinator::State& job, InquiryEvent event);

/// Returns whether the answer to that inspector is still being collected.
[[nodiscard]] bool is_open(const InquiryState& state, InspectorId inspector);

}  // namespace ddprun::diagnosis
