#pragma once
// Rules about requests for flight records: which nodes are asked, what they answer, and when an inquiry ends. Private
// to the inquiries.

#include "rendezvous/diagnosis/inquiry/transition.hpp"

namespace ddprun::diagnosis {

/// Returns whether an inquiry about this subject is open.
[[nodiscard]] bool is_open(const InquiryState& state, Subject subject);

/// Requests the records of `inquiry.rank`, or of all ranks of `inquiry.nodes`, with up to `operations` operations each,
/// and opens the inquiry. Concludes it at once if no node can answer.
void open_inquiry(InquiryTransition& t, Inquiry inquiry, int operations);

/// Adds a record to its inquiry, and concludes the inquiry after the last record of the last node. Ignores a record
/// that arrives late, or of a rank that is not its sender's.
void record_received(InquiryTransition& t, RecordReceived event);

/// Concludes the inquiries that are past their deadline, of an older generation, or without a node left to wait for.
void end_overdue_inquiries(InquiryTransition& t);

}  // namespace ddprun::diagnosis
