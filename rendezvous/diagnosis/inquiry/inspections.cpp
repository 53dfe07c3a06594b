#include "rendezvous/diagnosis/inquiry/inspections.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/diagnosis/inquiry/requests.hpp"
#include "rendezvous/diagnosis/snapshot.hpp"

namespace ddprun::diagnosis {
namespace {

std::string why_no_workers(const coordinator::State& job) {
    if (job.verdict) return "no workers run: " + job.verdict->reason;
    if (!job.explanation.message.reason.empty()) return "no workers run: " + job.explanation.message.reason;
    return "no workers run";
}

}  // namespace

void inspection_requested(InquiryTransition& t, const InspectionRequested& event) {
    if (!workers_run(t.job)) {
        Inspected answer{t.job.config.run_id, t.job.generation, 0, {}, why_no_workers(t.job)};
        t.actions.push_back(ToInspector{event.inspector, std::move(answer)});
        return;
    }
    const Inspect& request = event.request;
    open_inquiry(t,
                 {.subject = Subject::kInspector,
                  .deadline = t.now + kAnswerTimeout,
                  .rank = request.rank,
                  .inspector = event.inspector},
                 request.rank ? request.operations : std::min(request.operations, kOperationsShownOfAll));
}

void answer_inspector(InquiryTransition& t, const Inquiry& inquiry) {
    std::vector<std::string> silent;
    std::string verdict;
    if (inquiry.generation != t.job.group.generation) {
        verdict = "the workers were restarted meanwhile: run ddpctl again";
    } else if (!inquiry.rank) {
        verdict = diagnose_now(records_of_all(t.job, inquiry), kStuckAfter);
        for (const auto& [id, member] : t.job.group.members) {
            const auto node = t.job.nodes.find(id);
            if ((inquiry.missing.contains(id) || !answers(t.job, id)) && node != t.job.nodes.end())
                silent.push_back(node->second.join.host);
        }
    }
    Inspected answer{t.job.config.run_id, inquiry.generation, inquiry.world_size, std::move(silent),
                     std::move(verdict)};
    t.actions.push_back(ToInspector{inquiry.inspector, std::move(answer)});
}

void inspector_left(InquiryTransition& t, const InspectorLeft& event) {
    std::erase_if(t.state.open, [&](const auto& entry) {
        return entry.second.subject == Subject::kInspector && entry.second.inspector == event.inspector;
    });
}

}  // namespace ddprun::diagnosis
