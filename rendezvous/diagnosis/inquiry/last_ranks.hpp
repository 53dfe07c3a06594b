#pragma once
// Rules about a job whose workers have all ended well except for some that are stopped. No operation fails in such a
// job, so without these rules nothing would report why it does not end. Private to the inquiries.

#include <chrono>

#include "rendezvous/diagnosis/inquiry/transition.hpp"

namespace ddprun::diagnosis {

/// The last ranks are looked at this long after the newest successful end of a worker.
inline constexpr std::chrono::seconds kLeftBehindAfter{5};
/// Pause until they are looked at again. It doubles each time that one of them is not stopped, up to the maximum.
inline constexpr std::chrono::seconds kLastRanksInterval{5};
inline constexpr std::chrono::minutes kMaxLastRanksInterval{5};

/// Opens an inquiry about the last ranks when it is time.
void ask_about_last_ranks(InquiryTransition& t);
/// Reports to all agents that every remaining rank is stopped. Reports nothing if a rank is not stopped, because it may
/// be saving a checkpoint, or if a node does not answer.
void conclude_last_ranks(InquiryTransition& t, const Inquiry& inquiry);

}  // namespace ddprun::diagnosis
