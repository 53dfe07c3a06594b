#include "rendezvous/diagnosis/inquiry/last_ranks.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "rendezvous/diagnosis/inquiry/repeats.hpp"
#include "rendezvous/diagnosis/inquiry/requests.hpp"
#include "rendezvous/diagnosis/snapshot.hpp"

namespace ddprun::diagnosis {
namespace {

using coordinator::Phase;
using std::chrono::nanoseconds;

/// Returns when the newest successful end of a worker was; empty: there was none.
std::optional<TimePoint> newest_end(const coordinator::Group& group) {
    std::optional<TimePoint> newest;
    const auto add = [&](TimePoint at) { newest = std::max(newest.value_or(at), at); };
    for (const auto& [rank, at] : group.finished) add(at);
    for (const auto& [id, member] : group.members) {
        if (member.succeeded) add(member.succeeded_at);
    }
    return newest;
}

bool all_left_can_answer(const coordinator::State& job) {
    return std::ranges::all_of(job.group.members,
                               [&](const auto& entry) { return entry.second.succeeded || answers(job, entry.first); });
}

}  // namespace

void ask_about_last_ranks(InquiryTransition& t) {
    if (t.job.phase != Phase::kRunning) return;
    const auto newest = newest_end(t.job.group);
    if (!newest || t.now < *newest + kLeftBehindAfter) return;
    forget_older_generations(t, t.job.group.generation);
    LastRanks& last = t.state.last_ranks;
    if (std::exchange(last.newest_end, newest) != newest) last.interval = kLastRanksInterval;
    if (t.now < last.asked_at + last.interval) return;
    last.asked_at = t.now;
    last.interval = std::min<nanoseconds>(2 * last.interval, kMaxLastRanksInterval);
    open_inquiry(t, {.subject = Subject::kLastRanks, .deadline = t.now + kAnswerTimeout}, 1);
}

void conclude_last_ranks(InquiryTransition& t, const Inquiry& inquiry) {
    if (inquiry.generation != t.job.group.generation || t.job.phase != Phase::kRunning) return;
    if (!inquiry.missing.empty() || !all_left_can_answer(t.job)) return;
    LastRanks& last = t.state.last_ranks;
    std::string text = diagnose_left_behind(inquiry.records);
    if (text.empty()) {
        last.reported_for.reset();
        return;
    }
    last.interval = next_pause(last.reported_for);
    last.reported_for = last.interval;
    notify_agents(t, text, "");
    t.actions.push_back(Conclusion{std::move(text)});
}

}  // namespace ddprun::diagnosis
