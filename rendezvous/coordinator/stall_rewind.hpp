#pragma once
// The verdict on an operation that has failed by its deadline. When that is known its peers have failed too, ranks that
// were late have come, and processes have ended: so the boards are turned back to the moment before. Pure.

#include <chrono>
#include <functional>
#include <vector>

#include "rendezvous/coordinator/stall.hpp"

namespace ddprun::coordinator {

/// After a group has failed, all that was in hand there has ended within this time: whoever suspects somebody last
/// gives up up to 3 s after who knows (worker_lib's native/deadlines.hpp; a test compares).
inline constexpr std::chrono::nanoseconds kTogether = std::chrono::seconds(4);

/// The boards as they would have been read `by` earlier; an operation that had been called by then and has ended since
/// is in hand again. What a board has forgotten stays forgotten.
[[nodiscard]] std::vector<RankBoard> rewind(std::vector<RankBoard> boards, std::chrono::nanoseconds by);

/// Whether people are to have this verdict; asked of each in turn until it says yes.
using IsNews = std::function<bool(const StallVerdict&)>;

/// Who kept those waiting who were the first to fail by a deadline, in the last `recent`, or kRecentTimeout if that is
/// less. Of the deadlines that passed then, the first counts of which the boards tell something that is news.
/// `boards`: as in judge(), read at about the same time. kNone when nobody has failed so, or the boards do not tell.
[[nodiscard]] StallVerdict judge_timeout(const std::vector<RankBoard>& boards,
                                         std::chrono::nanoseconds recent = kRecentTimeout, const IsNews& is_news = {});

}  // namespace ddprun::coordinator
