#include "rendezvous/diagnosis/cause.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace ddprun::diagnosis {
namespace {

/// Two signs of failure that are no further apart may have been seen in the wrong order.
constexpr std::chrono::milliseconds kUncertainOrder{10};

/// Phrases by which Linux, Gloo, NCCL and PyTorch's store report a lost peer, in lower case. worker_lib reports it in
/// the flight record.
constexpr std::array<std::string_view, 8> kLostPeerPhrases{
    "closed by peer", "closed by remote peer", "reset by peer",   "broken pipe",
    "pair closure",   "remote process exited", "ncclremoteerror", "remote server shutdown",
};

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool reports_lost_peer(std::string_view text) {
    const auto same = [](char spoken, char known) { return lower(spoken) == known; };
    return std::ranges::any_of(
        kLostPeerPhrases, [&](std::string_view phrase) { return !std::ranges::search(text, phrase, same).empty(); });
}

}  // namespace

bool lost_a_peer(const FailureReport& failure) {
    return failure.peer_failed || reports_lost_peer(failure.message) ||
           std::ranges::any_of(failure.last_lines, [](const std::string& line) { return reports_lost_peer(line); });
}

bool explains(const TimedFailure& later, const TimedFailure& first) {
    if (is_violent(first.report.status)) return false;
    if (is_violent(later.report.status)) return true;
    const bool first_is_a_victim = lost_a_peer(first.report);
    if (first_is_a_victim != lost_a_peer(later.report)) return first_is_a_victim;
    const bool seen_to_fail = later.report.failing_for > std::chrono::milliseconds(0);
    return seen_to_fail && later.began + kUncertainOrder < first.began;
}

}  // namespace ddprun::diagnosis
