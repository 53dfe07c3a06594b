#include "rendezvous/diagnosis/inquiry/inquiries.hpp"

#include <algorithm>
#include <utility>

#include "common/overloaded.hpp"
#include "rendezvous/diagnosis/inquiry/failures.hpp"
#include "rendezvous/diagnosis/inquiry/inspections.hpp"
#include "rendezvous/diagnosis/inquiry/last_ranks.hpp"
#include "rendezvous/diagnosis/inquiry/overdue.hpp"
#include "rendezvous/diagnosis/inquiry/requests.hpp"
#include "rendezvous/diagnosis/inquiry/stalls.hpp"

namespace ddprun::diagnosis {
namespace {

void agent_reported_stall(InquiryTransition& t, const StallReported& event) {
    const coordinator::Group& group = t.job.group;
    if (!workers_run(t.job) || event.report.generation != group.generation || !group.members.contains(event.node))
        return;
    forget_older_generations(t, group.generation);
    if (event.report.timed_out) return timeout_reported(t);
    stall_reported(t, event);
}

void tick(InquiryTransition& t) {
    end_overdue_inquiries(t);
    if (t.job.phase == coordinator::Phase::kRunning && t.state.generation == t.job.group.generation)
        ask_about_timeouts(t);
    ask_about_last_ranks(t);
    ask_about_overdue_ranks(t);
    ask_about_remembered_stall(t);
}

}  // namespace

InquiryStep step(InquiryState state, const coordinator::State& job, InquiryEvent event) {
    InquiryTransition t{job, std::move(state), event.now};
    std::visit(Overloaded{
                   [&](const StallReported& e) { agent_reported_stall(t, e); },
                   [&](const FailureReported&) { failure_reported(t); },
                   [&](RecordReceived& e) { record_received(t, std::move(e)); },
                   [&](const InspectionRequested& e) { inspection_requested(t, e); },
                   [&](const InspectorLeft& e) { inspector_left(t, e); },
                   [&](const InquiryTick&) { tick(t); },
               },
               event.what);
    return {std::move(t.state), std::move(t.actions), std::move(t.reason)};
}

bool is_open(const InquiryState& state, InspectorId inspector) {
    return std::ranges::any_of(state.open, [&](const auto& entry) {
        return entry.second.subject == Subject::kInspector && entry.second.inspector == inspector;
    });
}

}  // namespace ddprun::diagnosis
