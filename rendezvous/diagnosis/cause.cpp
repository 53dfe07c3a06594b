#include "rendezvous/coordinator/blame.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace ddprun::coordinator {
namespace {

/// Two signs of failure that are no further apart may have been seen in the wrong order.
constexpr std::chrono::milliseconds kSameMoment{10};

/// How programs say that a peer is gone, in lower case: Linux, Gloo, NCCL, PyTorch's store, worker_lib.
constexpr std::array<std::string_view, 14> kPeerIsGone{
    "closed by peer",
    "closed by remote peer",
    "reset by peer",
    "broken pipe",
    "pair closure",
    "remote process exited",
    "ncclremoteerror",
    "remote server shutdown",
    "lost rank ",
    ") reported: ",
    "has left the group",
    "is gone: its process ended",
    "has failed and did not say why",
    "ended while the group was forming",
};

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool says_that_a_peer_is_gone(std::string_view text) {
    const auto same = [](char spoken, char known) { return lower(spoken) == known; };
    return std::ranges::any_of(kPeerIsGone,
                               [&](std::string_view words) { return !std::ranges::search(text, words, same).empty(); });
}

}  // namespace

bool lost_a_peer(const FailureReport& failure) {
    return says_that_a_peer_is_gone(failure.message) ||
           std::ranges::any_of(failure.last_lines,
                               [](const std::string& line) { return says_that_a_peer_is_gone(line); });
}

bool explains(const TimedFailure& later, const TimedFailure& first) {
    if (is_violent(first.report.status)) return false;
    if (is_violent(later.report.status)) return true;
    const bool first_is_a_victim = lost_a_peer(first.report);
    if (first_is_a_victim != lost_a_peer(later.report)) return first_is_a_victim;
    const bool seen_to_fail = later.report.failing_for > std::chrono::milliseconds(0);
    return seen_to_fail && later.began + kSameMoment < first.began;
}

}  // namespace ddprun::coordinator
