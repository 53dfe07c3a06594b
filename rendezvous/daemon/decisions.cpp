#include "rendezvous/daemon/decisions.hpp"

#include <utility>

#include "common/overloaded.hpp"
#include "common/text/cut.hpp"

namespace ddprun::daemon {

using diagnosis::InquiryHappening;

namespace {

/// Returns what the inquiries get of an event that the coordinator has handled. Most messages, the heartbeats among
/// them, do not concern the inquiries.
std::optional<InquiryHappening> for_inquiries(coordinator::Happening&& what) {
    if (std::holds_alternative<coordinator::Tick>(what)) return diagnosis::InquiryTick{};
    auto* message = std::get_if<coordinator::NodeMessage>(&what);
    if (message == nullptr) return std::nullopt;
    if (const auto* stalled = std::get_if<protocol::Stalled>(&message->message))
        return diagnosis::StallReported{message->node, *stalled};
    if (auto* record = std::get_if<protocol::RecordReply>(&message->message))
        return diagnosis::RecordReceived{message->node, std::move(*record)};
    if (std::holds_alternative<protocol::WorkerFailed>(message->message)) return diagnosis::FailureReported{};
    return std::nullopt;
}

}  // namespace

std::optional<DaemonStep> Decisions::next() {
    if (events_.empty()) return std::nullopt;
    Event event = std::move(events_.front());
    events_.pop_front();
    now_ = event.now;
    if (auto* of_job = std::get_if<coordinator::Happening>(&event.what)) return step_coordinator(std::move(*of_job));
    return step_inquiries(std::move(std::get<InquiryHappening>(event.what)));
}

DaemonStep Decisions::step_coordinator(coordinator::Happening what) {
    coordinator::Event event{now_, std::move(what)};
    coordinator::Step step = coordinator::step(std::move(job_), event);
    job_ = std::move(step.next);
    if (auto follows = for_inquiries(std::move(event.what))) add_follower(std::move(*follows));
    DaemonStep result;
    result.reason = std::move(step.reason);
    if (!step.decision.empty()) {
        reasons_.push_back({now_, cut(step.decision, protocol::kMaxDecisionBytes)});
        if (reasons_.size() > protocol::kMaxDecisions) reasons_.pop_front();
    }
    result.actions.reserve(step.actions.size());
    for (coordinator::Action& action : step.actions)
        std::visit([&](auto& one) { result.actions.emplace_back(std::move(one)); }, action);
    return result;
}

DaemonStep Decisions::step_inquiries(InquiryHappening what) {
    diagnosis::InquiryStep step = diagnosis::step(std::move(inquiries_), job_, {now_, std::move(what)});
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
                           add_follower(coordinator::DiagnosisPending{one.generation});
                       },
                       [&](diagnosis::DiagnosisFinished& one) {
                           add_follower(coordinator::Diagnosed{one.generation, std::move(one.diagnosis)});
                       },
                   },
                   action);
    }
    return result;
}

}  // namespace ddprun::daemon
