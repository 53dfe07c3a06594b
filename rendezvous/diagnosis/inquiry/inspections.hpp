#pragma once
// Rules about inspectors: connections of ddpctl, which ask for flight records and change nothing. Private to the
// inquiries.

#include <chrono>

#include "rendezvous/diagnosis/inquiry/transition.hpp"

namespace ddprun::diagnosis {

/// For an inspector, a rank that waits in an operation for less is not stuck.
inline constexpr std::chrono::seconds kStuckAfter{5};

/// Requests the records that the inspector asks for, or answers at once if no workers run.
void inspection_requested(InquiryTransition& t, const InspectionRequested& event);
/// Sends Inspected, the end of the answer.
void answer_inspector(InquiryTransition& t, const Inquiry& inquiry);
/// Ends the inspector's inquiry without an answer.
void inspector_left(InquiryTransition& t, const InspectorLeft& event);

}  // namespace ddprun::diagnosis
