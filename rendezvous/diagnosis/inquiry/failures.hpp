#pragma once
// Rules about failures of workers: by the deadline of an operation, by an error, or by the end of the process. Private
// to the inquiries.

#include <chrono>

#include "rendezvous/diagnosis/inquiry/transition.hpp"

namespace ddprun::diagnosis {

/// Pause between two inquiries about operations that failed by their deadline: peers fail of the same deadline later.
inline constexpr std::chrono::seconds kTimeoutInterval{5};

/// An operation has failed by its deadline: opens an inquiry, now or when the peers have failed as well.
void timeout_reported(InquiryTransition& t);
/// Opens the inquiry about such operations that was put off, when its time has come.
void ask_about_timeouts(InquiryTransition& t);
/// A worker has failed: opens an inquiry about the cause of the stop, unless that worker was asked about already.
void failure_reported(InquiryTransition& t);
/// Reports the diagnosis to the coordinator, for the verdict of a job that ends. A job that goes on gets a notice.
void conclude_failure(InquiryTransition& t, const Inquiry& inquiry);

}  // namespace ddprun::diagnosis
