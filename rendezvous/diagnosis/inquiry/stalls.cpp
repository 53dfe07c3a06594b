#include "rendezvous/diagnosis/inquiry/stalls.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "rendezvous/diagnosis/inquiry/repeats.hpp"
#include "rendezvous/diagnosis/inquiry/requests.hpp"

namespace ddprun::diagnosis {
namespace {

using std::chrono::nanoseconds;

void open_stall(InquiryTransition& t, nanoseconds min_wait) {
    t.state.stalls.reminder.reset();
    open_inquiry(t, {.subject = Subject::kStall, .deadline = t.now + kAnswerTimeout, .min_wait = min_wait},
                 kOperationsShownOfAll);
}

/// Postpones the inquiry about a stall. One inquiry looks at everything, so stalls that are reported meanwhile share
/// it.
void remember(InquiryTransition& t, nanoseconds min_wait, TimePoint when) {
    auto& reminder = t.state.stalls.reminder;
    if (!reminder) reminder = StallReports::Reminder{min_wait, when};
    reminder->min_wait = std::min(reminder->min_wait, min_wait);
    reminder->when = std::min(reminder->when, when);
}

/// Returns whether to report this verdict to the agents, and remembers it if so. A verdict on the same operation is
/// reported once. A verdict on another operation and the same ranks is held back for kRepeatPause, then for twice as
/// long each time, because a rank may be late in every step. A verdict that is held back leads to another inquiry at
/// the end of the pause, because that stall may never end.
bool is_news(InquiryTransition& t, const StallVerdict& verdict, nanoseconds min_wait) {
    auto& all = t.state.stalls.reported;
    std::erase_if(all, [&](const auto& entry) { return t.now >= entry.second.until + kMaxRepeatPause; });
    if (all.size() >= kMaxReported) all.clear();
    auto [entry, is_new] = all.try_emplace({verdict.kind, verdict.group, verdict.ranks});
    StallReports::Reported& reported = entry->second;
    const Occasion occasion = occasion_of(verdict);
    if (!is_new && reported.occasion == occasion) return false;
    if (!is_new && t.now < reported.until) {
        remember(t, min_wait, reported.until);
        return false;
    }
    reported.occasion = occasion;
    reported.quiet = next_pause(is_new ? std::nullopt : std::optional(reported.quiet));
    reported.until = t.now + reported.quiet;
    return true;
}

}  // namespace

void stall_reported(InquiryTransition& t, const StallReported& event) {
    // Half, because the waits of its peers began at other times, and clocks of different hosts are not compared.
    const nanoseconds min_wait = event.report.waited / 2;
    const TimePoint earliest = t.state.stalls.next_inquiry;
    if (!is_open(t.state, Subject::kStall) && t.now >= earliest) return open_stall(t, min_wait);
    remember(t, min_wait, std::max(t.now, earliest));
}

void ask_about_remembered_stall(InquiryTransition& t) {
    StallReports& stalls = t.state.stalls;
    if (!stalls.reminder || is_open(t.state, Subject::kStall)) return;
    if (t.now < std::max(stalls.reminder->when, stalls.next_inquiry)) return;
    const StallReports::Reminder due = *std::exchange(stalls.reminder, std::nullopt);
    if (workers_run(t.job) && t.state.generation == t.job.group.generation) open_stall(t, due.min_wait);
}

void conclude_stall(InquiryTransition& t, const Inquiry& inquiry) {
    StallVerdict verdict;
    if (inquiry.generation == t.job.group.generation)
        verdict = diagnose(records_of_all(t.job, inquiry), inquiry.min_wait);
    const bool news = verdict.kind != StallKind::kNone && is_news(t, verdict, inquiry.min_wait);
    StallReports& stalls = t.state.stalls;
    const nanoseconds before = std::max<nanoseconds>(stalls.interval, kStallInterval);
    stalls.interval = news ? nanoseconds(kStallInterval) : std::min<nanoseconds>(before * 2, kMaxStallInterval);
    stalls.next_inquiry = t.now + stalls.interval;
    if (!news) return;
    notify_agents(t, verdict.text, verdict.hint);
    t.actions.push_back(Conclusion{std::move(verdict.text)});
}

}  // namespace ddprun::diagnosis
