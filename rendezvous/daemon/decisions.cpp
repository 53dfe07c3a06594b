#include "rendezvous/daemon/decisions.hpp"

#include <utility>

#include "common/overloaded.hpp"

namespace ddprun::daemon {

using diagnosis::InquiryEvent;

namespace {

/// Returns the inquiries' event for an event that the coordinator has handled. Most messages, the heartbeats among
/// them, do not concern the inquiries.
std::optional<InquiryEvent> inquiry_event(coordinator::Event&& event) {
    if (const auto* tick = std::get_if<coordinator::Tick>(&event)) return diagnosis::InquiryTick{tick->now};
    auto* message = std::get_if<coordinator::NodeMessage>(&event);
    if (message == nullptr) return std::nullopt;
    if (const auto* stalled = std::get_if<protocol::Stalled>(&message->message))
        return diagnosis::StallReported{message->node, *stalled, message->now};
    if (auto* record = std::get_if<protocol::RecordReply>(&message->message))
        return diagnosis::RecordReceived{message->node, std::move(*record), message->now};
    if (std::holds_alternative<protocol::WorkerFailed>(message->message))
        return diagnosis::FailureReported{message->now};
    return std::nullopt;
}

}  // namespace

std::optional<DaemonStep> Decisions::next() {
    if (events_.empty()) return std::nullopt;
    DaemonEvent event = std::move(events_.front());
    events_.pop_front();
    if (auto* of_job = std::get_if<coordinator::Event>(&event)) return step_coordinator(std::move(*of_job));
    return step_inquiries(std::move(std::get<InquiryEvent>(event)));
}

DaemonStep Decisions::step_coordinator(coordinator::Event event) {
    coordinator::Step step = coordinator::step(std::move(job_), event);
    job_ = std::move(step.next);
    if (auto follows = inquiry_event(std::move(event))) add(std::move(*follows));
    DaemonStep result;
    result.reason = std::move(step.reason);
    result.actions.reserve(step.actions.size());
    for (coordinator::Action& action : step.actions)
        std::visit([&](auto& one) { result.actions.emplace_back(std::move(one)); }, action);
    return result;
}

DaemonStep Decisions::step_inquiries(InquiryEvent event) {
    const TimePoint now = std::visit([](const auto& e) { return e.now; }, event);
    diagnosis::InquiryStep step = diagnosis::step(std::move(inquiries_), job_, std::move(event));
    inquiries_ = std::move(step.next);
    DaemonStep result;
    result.inquiry_reason = std::move(step.reason);
    const auto perform = [&](auto& action) { result.actions.emplace_back(std::move(action)); };
    for (diagnosis::InquiryAction& action : step.actions) {
        std::visit(Overloaded{
                       [&](diagnosis::ToAgent& one) { perform(one); },
                       [&](diagnosis::ToInspector& one) { perform(one); },
                       [&](diagnosis::Conclusion& one) { perform(one); },
                       [&](const diagnosis::DiagnosisStarted& one) {
                           add(coordinator::DiagnosisPending{one.generation, now});
                       },
                       [&](diagnosis::DiagnosisFinished& one) {
                           add(coordinator::Diagnosed{one.generation, std::move(one.diagnosis), now});
                       },
                   },
                   action);
    }
    return result;
}

}  // namespace ddprun::daemon
