#include "tests/sim/inquiry_checker.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace ddprun::sim {

using namespace protocol;
using diagnosis::InspectorId;
using diagnosis::ToAgent;
using diagnosis::ToInspector;

void InquiryChecker::expect(bool holds, const std::string& what) {
    if (!holds && broken_.empty()) broken_ = what;
}

void InquiryChecker::asked(InspectorId inspector, TimePoint now) {
    expect(asked_at_.emplace(inspector, now).second, "an inspector asks twice at a time");
}

void InquiryChecker::after_event(const daemon::Decisions& decisions, const std::vector<daemon::DaemonAction>& actions,
                                 TimePoint now, bool ticked) {
    const coordinator::State& job = decisions.job();
    for (const daemon::DaemonAction& action : actions) {
        if (const auto* to_agent = std::get_if<ToAgent>(&action)) check_recipient(job, *to_agent, now);
        if (const auto* to_inspector = std::get_if<ToInspector>(&action)) check_answer(*to_inspector);
        if (std::holds_alternative<diagnosis::Conclusion>(action)) ++conclusions_;
    }
    check_diagnosis(job);
    if (ticked) check_deadlines(decisions);
}

void InquiryChecker::check_recipient(const coordinator::State& job, const ToAgent& action, TimePoint now) {
    const auto* request = std::get_if<RequestRecords>(&action.message);
    if (request != nullptr) {
        expect(requested_at_.empty() || request->request >= requested_at_.rbegin()->first, "a request number repeats");
        requested_at_.emplace(request->request, now);
        expect(request->generation == job.group.generation, "records of an old generation are requested");
    }
    expect(request != nullptr || std::holds_alternative<Notice>(action.message), "an unexpected message to an agent");
    const auto node = job.nodes.find(action.node);
    if (node == job.nodes.end()) return;  // it was released by what followed
    expect(node->second.join.records, action.node + " gets a message that it does not understand");
}

/// Each question of an inspector gets one Inspected, and no record without a question.
void InquiryChecker::check_answer(const ToInspector& action) {
    const auto question = asked_at_.find(action.inspector);
    expect(question != asked_at_.end(), "an inspector gets an answer that it did not ask for");
    if (question == asked_at_.end() || !std::holds_alternative<Inspected>(action.message)) return;
    asked_at_.erase(question);
    ++answers_;
}

/// After every event: the coordinator waits for a diagnosis exactly as long as the inquiry about a failure is open.
void InquiryChecker::check_diagnosis(const coordinator::State& job) {
    const auto& since = job.group.diagnosis_pending_since;
    if (since && diagnosis_pending_since_ != since) ++diagnoses_;
    diagnosis_pending_since_ = since;
}

/// After a tick nothing is past its deadline, however long the daemon was paused before.
void InquiryChecker::check_deadlines(const daemon::Decisions& decisions) {
    const TimePoint now = decisions.job().now;
    for (const auto& [number, inquiry] : decisions.inquiries().open) {
        const auto requested = requested_at_.find(number);
        expect(requested != requested_at_.end(), fmt::format("request {} was never sent", number));
        if (requested == requested_at_.end()) continue;
        const Duration limit = inquiry.subject == diagnosis::Subject::kFailure ? Duration(diagnosis::kFailureTimeout)
                                                                               : Duration(diagnosis::kAnswerTimeout);
        expect(now - requested->second < limit, fmt::format("request {} is still open", number));
        expect(!inquiry.missing.empty(), fmt::format("request {} is open without a node to wait for", number));
    }
    for (const auto& [inspector, since] : asked_at_)
        expect(now - since < diagnosis::kAnswerTimeout, "an inspector has no answer");
    if (diagnosis_pending_since_) {
        expect(now - *diagnosis_pending_since_ < diagnosis::kFailureTimeout,
               "the diagnosis of a failure is not concluded in time");
        expect(
            std::ranges::any_of(decisions.inquiries().open,
                                [](const auto& entry) { return entry.second.subject == diagnosis::Subject::kFailure; }),
            "the coordinator waits for a diagnosis without an inquiry");
    }
}

}  // namespace ddprun::sim
