#pragma once
// Rules about failures of workers: by the deadline of an operation, by an error, or by the end of the process. Private
// to the inquiries.

#include <chrono>

#include "rendezvous/diagnosis/inquiry/transition.hpp"

namespace ddprun::diagnosis {

/// Pause between two inquiries about operations that failed by their deadline: peers fail by the same deadline later.
inline constexpr std::chrono::seconds kTimeoutInterval{5};

/// Handles an operation that failed by its deadline: opens an inquiry, now or when the peers have failed as well.
void timeout_reported(InquiryTransition& t);
/// Opens the postponed inquiry about such operations when it is due.
void ask_about_timeouts(InquiryTransition& t);
/// Handles a worker's failure: opens an inquiry about the cause of the stop, unless one was opened for that worker.
void failure_reported(InquiryTransition& t);
/// Reports the diagnosis to the coordinator, for the verdict of a job that ends. A job that goes on gets a notice.
void conclude_failure(InquiryTransition& t, const Inquiry& inquiry);

}  // namespace ddprun::diagnosis
