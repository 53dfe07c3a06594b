#pragma once
// Rules about ranks that have not ended at the deadline of a preemption. Private to the inquiries.

#include "rendezvous/diagnosis/inquiry/transition.hpp"

namespace ddprun::diagnosis {

/// Opens an inquiry about these ranks, once for each worker group.
void ask_about_overdue_ranks(InquiryTransition& t);
/// Reports to the coordinator which rank the others wait for, for the verdict.
void conclude_overdue(InquiryTransition& t, const Inquiry& inquiry);

}  // namespace ddprun::diagnosis
