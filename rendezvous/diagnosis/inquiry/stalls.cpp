#include "rendezvous/diagnosis/inquiry/stalls.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/diagnosis/inquiry/repeats.hpp"
#include "rendezvous/diagnosis/inquiry/requests.hpp"
#include "rendezvous/diagnosis/link.hpp"

namespace ddprun::diagnosis {
namespace {

using std::chrono::nanoseconds;

/// Opens the inquiry, which also looks at the stalls that are remembered.
void open_stall(InquiryTransition& t, nanoseconds min_wait) {
    auto& reminder = t.state.stalls.reminder;
    if (reminder) min_wait = std::min(min_wait, reminder->min_wait);
    reminder.reset();
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

/// Returns the key under which a verdict is remembered. A cut link that shares a node with the links that were reported
/// has their key: that node is cut off, and one line is enough.
StallReports::Accused key_of(const StallReports& stalls, const StallVerdict& verdict) {
    for (const auto& [key, reported] : stalls.reported)
        if (share_a_node(reported.links, verdict.links)) return key;
    return {verdict.kind, verdict.group, verdict.ranks};
}

/// Returns the nodes of which an agent has not answered.
std::set<std::string> silent_nodes(const std::vector<RankRecord>& records) {
    std::set<std::string> nodes;
    for (const RankRecord& record : records)
        if (!record.process && !record.ended) nodes.insert(record.host);
    return nodes;
}

/// Reduces a verdict on cut links to those that an earlier inquiry has shown as well; kNone if none has. Returns
/// whether links are left to be confirmed. One inquiry is no evidence: a host that was paused when the waiting ranks
/// were asked may go on, and answer, before the inquiry ends. An inquiry that an agent of one of the two nodes has not
/// answered neither confirms nor refutes a link.
bool confirm_links(StallReports& stalls, const std::vector<RankRecord>& records, TimePoint now, StallVerdict& verdict) {
    auto before = std::exchange(stalls.suspects, {});
    std::erase_if(before, [&](const auto& suspect) { return now >= suspect.second; });
    std::vector<CutLink> confirmed;
    for (const CutLink& link : verdict.links) {
        if (before.erase(link) > 0) confirmed.push_back(link);
        stalls.suspects.emplace(link, now + kMaxStallInterval + kAnswerTimeout);
    }
    const bool unconfirmed = confirmed.size() < verdict.links.size();
    if (unconfirmed) verdict = confirmed.empty() ? StallVerdict{} : diagnose_link(records, &confirmed);
    const std::set<std::string> silent = silent_nodes(records);
    std::erase_if(before, [&](const auto& suspect) {
        return !silent.contains(suspect.first.first) && !silent.contains(suspect.first.second);
    });
    const bool unanswered = !before.empty();
    stalls.suspects.merge(before);
    return unconfirmed || unanswered;
}

/// Returns whether to report this verdict to the agents, and remembers it if so. A verdict on the same operation is
/// reported once. A verdict on another operation and the same ranks is held back for kRepeatPause, then for twice as
/// long each time, because a rank may be late in every step. A verdict that is held back leads to another inquiry at
/// the end of the pause, because that stall may never end.
bool is_news(InquiryTransition& t, const StallVerdict& verdict, nanoseconds min_wait) {
    auto& all = t.state.stalls.reported;
    std::erase_if(all, [&](const auto& entry) { return t.now >= entry.second.until + kMaxRepeatPause; });
    if (all.size() >= kMaxReported) all.clear();
    auto [entry, is_new] = all.try_emplace(key_of(t.state.stalls, verdict));
    StallReports::Reported& reported = entry->second;
    for (const CutLink& link : verdict.links)
        if (std::ranges::find(reported.links, link) == reported.links.end()) reported.links.push_back(link);
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

/// Shortens the pause after the newest inquiry to the shortest one.
void end_pause(StallReports& stalls) {
    if (stalls.interval <= nanoseconds(kStallInterval)) return;
    stalls.next_inquiry -= stalls.interval - nanoseconds(kStallInterval);
    stalls.interval = kStallInterval;
}

}  // namespace

void stall_reported(InquiryTransition& t, const StallReported& event) {
    // Half, because the waits of its peers began at other times, and clocks of different hosts are not compared. A
    // report about an unreachable host is about that alone: how long ranks wait is for --stall-warning to say.
    const nanoseconds min_wait = event.report.unreachable ? nanoseconds::max() : event.report.waited / 2;
    if (event.report.unreachable) end_pause(t.state.stalls);
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
    StallReports& stalls = t.state.stalls;
    StallVerdict verdict;
    bool unexplained = false;  // an agent reports an unreachable host once
    bool unconfirmed = false;
    if (inquiry.generation == t.job.group.generation) {
        const std::vector<RankRecord> records = records_of_all(t.job, inquiry);
        verdict = diagnose(records, inquiry.min_wait);
        unexplained = verdict.kind != StallKind::kLink && shows_unreachable(records);
        unconfirmed = confirm_links(stalls, records, t.now, verdict);
    }
    const bool is_link = verdict.kind == StallKind::kLink;
    const bool news = verdict.kind != StallKind::kNone && is_news(t, verdict, inquiry.min_wait);
    const nanoseconds before = std::max<nanoseconds>(stalls.interval, kStallInterval);
    stalls.interval = news || unexplained || unconfirmed ? nanoseconds(kStallInterval)
                                                         : std::min<nanoseconds>(before * 2, kMaxStallInterval);
    const TimePoint asked_at = inquiry.deadline - kAnswerTimeout;
    const TimePoint soon = t.now + kConfirmPause;
    stalls.confirming = unconfirmed && !is_link && !stalls.confirming;  // once, because the links may differ each time
    stalls.next_inquiry = stalls.confirming ? soon : std::max(asked_at + stalls.interval, soon);
    // A stall that a link hides is reported when the link is back: an agent reports an operation once.
    if (unexplained || unconfirmed || (is_link && inquiry.min_wait != nanoseconds::max()))
        remember(t, inquiry.min_wait, stalls.next_inquiry);
    if (!news) return;
    notify_agents(t, verdict.text, verdict.hint);
    t.actions.push_back(Conclusion{std::move(verdict.text)});
}

}  // namespace ddprun::diagnosis
