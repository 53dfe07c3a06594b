#pragma once
// Rules about stalls: operations that take longer than their node finds normal. Private to the inquiries.

#include <chrono>

#include "rendezvous/diagnosis/inquiry/transition.hpp"

namespace ddprun::diagnosis {

/// Time between the starts of two inquiries about stalls, however many are reported. It doubles after each inquiry that
/// found nothing new, up to kMaxStallInterval.
inline constexpr std::chrono::seconds kStallInterval{5};
inline constexpr std::chrono::seconds kMaxStallInterval{30};
/// Pause before the inquiry that confirms a cut link, and at least after any other one. Within it, a worker sees that a
/// host which was paused answers. It may not see that the network of a host is back: its kernel repeats the data ever
/// more rarely. A link that is not cut any more is then reported, but no verdict follows.
inline constexpr std::chrono::seconds kConfirmPause{1};

/// Opens an inquiry about the reported stall, or remembers it for later.
void stall_reported(InquiryTransition& t, const StallReported& event);
/// Opens the postponed inquiry when it is due.
void ask_about_remembered_stall(InquiryTransition& t);
/// Reports the verdict to all agents if it is new.
void conclude_stall(InquiryTransition& t, const Inquiry& inquiry);

}  // namespace ddprun::diagnosis
