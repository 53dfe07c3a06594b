#include "rendezvous/diagnosis/inquiry/overdue.hpp"

#include <chrono>
#include <utility>

#include "rendezvous/coordinator/preemption.hpp"
#include "rendezvous/coordinator/running.hpp"
#include "rendezvous/diagnosis/inquiry/requests.hpp"
#include "rendezvous/diagnosis/snapshot.hpp"

namespace ddprun::diagnosis {
namespace {

/// A rank that has waited for less at the deadline waits for one that is about to come.
constexpr std::chrono::seconds kWaitsInVain{1};

}  // namespace

void ask_about_overdue_ranks(InquiryTransition& t) {
    if (!coordinator::asks_why_overdue(t.job)) return;
    forget_older_generations(t, t.job.group.generation);
    if (std::exchange(t.state.overdue_asked, true)) return;
    open_inquiry(t, {.subject = Subject::kOverdue, .deadline = t.now + coordinator::kDiagnosisTimeout / 2},
                 kOperationsShownOfAll);
}

void conclude_overdue(InquiryTransition& t, const Inquiry& inquiry) {
    t.actions.push_back(
        DiagnosisFinished{inquiry.generation, {.text = diagnose_now(records_of_all(t.job, inquiry), kWaitsInVain)}});
}

}  // namespace ddprun::diagnosis
