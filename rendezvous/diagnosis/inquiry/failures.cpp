#include "rendezvous/diagnosis/inquiry/failures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/diagnosis/death.hpp"
#include "rendezvous/diagnosis/inquiry/repeats.hpp"
#include "rendezvous/diagnosis/inquiry/requests.hpp"
#include "rendezvous/diagnosis/link.hpp"
#include "rendezvous/diagnosis/mismatch.hpp"
#include "rendezvous/diagnosis/rewind.hpp"
#include "rendezvous/diagnosis/wait_graph.hpp"

namespace ddprun::diagnosis {
namespace {

using coordinator::Phase;
using std::chrono::nanoseconds;

/// In a larger group the records of all ranks would cost the daemon a second and hundreds of MB.
constexpr int kMaxRanksAsked = 2'000;
constexpr std::size_t kMaxNodesAsked = 200;

bool is_large(const coordinator::Group& group) {
    return !group.members.empty() && group.members.begin()->second.assignment.world_size > kMaxRanksAsked;
}

/// Opens the one inquiry about failures. It looks at all deadlines, and at the cause that is known when it ends.
/// `rank`: the failed worker, whose record shows first which others are of use; empty: all are asked.
void open_failure(InquiryTransition& t, nanoseconds recent, std::optional<Rank> rank = {}) {
    if (is_open(t.state, Subject::kFailure)) return;
    t.actions.push_back(DiagnosisStarted{t.job.group.generation});
    open_inquiry(t, {.subject = Subject::kFailure, .deadline = t.now + kFailureTimeout, .rank = rank, .recent = recent},
                 kOperationsShownOfAll);
}

/// Returns whether an operation of the worker failed by a deadline, or after another rank. The cause may be any rank.
bool failed_because_of_others(const FlightRecord& view) {
    return std::ranges::any_of(view.operations, [](const RecordedOperation& operation) {
        return operation.failed && (operation.timed_out || operation.peer_failed);
    });
}

bool has_member_on(const RecordedGroup& group, const coordinator::Assignment& node, int slots) {
    if (group.members.empty()) return true;  // its list did not fit into the record
    for (int rank = node.rank_base; rank < node.rank_base + slots; ++rank)
        if (has_member(group, rank)) return true;
    return false;
}

/// Returns the nodes of the groups of `record`, at most kMaxNodesAsked: of small groups first, then those that are near
/// the rank.
std::set<NodeId> nodes_of_groups(const coordinator::State& job, const RankRecord& record) {
    std::vector<const RecordedGroup*> groups;
    for (const RecordedGroup& group : record.view.groups) groups.push_back(&group);
    std::ranges::stable_sort(groups, {}, [](const RecordedGroup* group) { return group->size; });
    std::vector<std::pair<int, NodeId>> by_distance;  // in ranks
    for (const auto& [id, member] : job.group.members)
        by_distance.emplace_back(std::abs(member.assignment.rank_base - number(record.rank)), id);
    std::ranges::sort(by_distance);
    std::set<NodeId> nodes;
    for (const RecordedGroup* group : groups) {
        for (const auto& [distance, id] : by_distance) {
            const auto node = job.nodes.find(id);
            if (nodes.size() == kMaxNodesAsked) return nodes;
            if (node == job.nodes.end()) continue;  // lost since
            const coordinator::Assignment& assignment = job.group.members.at(id).assignment;
            if (has_member_on(*group, assignment, slots_of(node->second.join))) nodes.insert(id);
        }
    }
    return nodes;
}

/// Asks the nodes that the record of the failed worker shows to be of use.
void ask_others(InquiryTransition& t, const Inquiry& first) {
    const RankRecord& record = first.records.front();
    Inquiry others{.subject = Subject::kFailure, .deadline = first.deadline, .recent = first.recent};
    if (!failed_because_of_others(record.view)) others.nodes = nodes_of_groups(t.job, record);
    open_inquiry(t, std::move(others), kOperationsShownOfAll);
}

/// Returns whether the agents are to get this verdict, and remembers it. An operation is reported once, although peers
/// fail in it later, when some of the late ranks have arrived. Operations are forgotten after a while, because a new
/// group of the same name counts from 1 again.
bool is_news(InquiryTransition& t, const StallVerdict& verdict) {
    auto& reported = t.state.failures.reported_timeouts;
    std::erase_if(reported, [&](const auto& entry) { return t.now >= entry.second + kRepeatPause; });
    if (reported.size() >= kMaxReported) reported.clear();
    return reported.insert_or_assign({verdict.group, occasion_of(verdict)}, t.now).second;
}

/// Returns the verdict on the first deadline that passed since the previous inquiry and was not reported yet. Both
/// times the records were read up to kFailureTimeout after the request, so a deadline that passed in between may look
/// that much older. Sets `known`, if not null, to the first verdict that was reported already.
StallVerdict new_timeout(InquiryTransition& t, const std::vector<RankRecord>& records, nanoseconds recent,
                         StallVerdict* known) {
    return diagnose_timeout(records, recent + kFailureTimeout, [&](const StallVerdict& candidate) {
        const bool news = is_news(t, candidate);
        if (!news && known != nullptr && known->kind == StallKind::kNone) *known = candidate;
        return news;
    });
}

Diagnosis by_waits(const StallVerdict& verdict) {
    return {
        .text = verdict.text_after, .hint = verdict.hint_after, .culprits = verdict.culprits, .links = verdict.links};
}

/// Returns the diagnosis of the worker that is the cause of the stop; its text is empty if the records do not show it.
Diagnosis by_cause(const FailureReport& cause, const std::vector<RankRecord>& records) {
    if (ErrorVerdict error = diagnose_error(records, cause); !error.text.empty())
        return {.text = error.text,
                .hint = std::move(error.hint),
                .culprits = std::move(error.culprits),
                .dead = cause.rank,
                .detail = error.text};
    DeathVerdict death = diagnose_death(records, cause);
    return {
        .text = std::move(death.text), .dead = cause.rank, .detail = std::move(death.detail), .names_activity = true};
}

/// Adds that other ranks may have waited, too.
void add_number_asked(Diagnosis& diagnosis, const Inquiry& inquiry, std::size_t nodes) {
    const std::size_t asked = inquiry.nodes ? inquiry.nodes->size() : 1;
    if (asked == nodes || diagnosis.detail.empty()) return;
    const std::string note = fmt::format(" (by the records of {} of {} nodes)", asked, nodes);
    diagnosis.text += note;
    diagnosis.detail += note;
}

}  // namespace

void timeout_reported(InquiryTransition& t) {
    t.state.failures.timeout_pending = true;
    ask_about_timeouts(t);
}

void ask_about_timeouts(InquiryTransition& t) {
    FailureReports& failures = t.state.failures;
    if (!failures.timeout_pending || is_open(t.state, Subject::kFailure)) return;
    if (t.now < failures.timeouts_asked_at + kTimeoutInterval) return;
    failures.timeout_pending = false;
    open_failure(t, t.now - std::exchange(failures.timeouts_asked_at, t.now));
}

/// Asks also about a worker that lost a peer: that peer may have failed by a deadline without being reported, because
/// its agent signaled it to end before it saw the failure.
void failure_reported(InquiryTransition& t) {
    if (t.job.phase != Phase::kStopping || !t.job.cause.failure) return;
    const FailureReport& failure = *t.job.cause.failure;
    if (failure.pid == 0 || failure.activity.empty()) return;
    forget_older_generations(t, t.job.group.generation);
    if (std::exchange(t.state.failures.failed, failure.rank) == failure.rank) return;
    open_failure(t, kRecentTimeout, is_large(t.job.group) ? std::optional(failure.rank) : std::nullopt);
}

void conclude_failure(InquiryTransition& t, const Inquiry& inquiry) {
    if (inquiry.generation != t.job.group.generation) {
        t.actions.push_back(DiagnosisFinished{inquiry.generation, {}});
        return;
    }
    if (inquiry.rank && !inquiry.records.empty() && t.now < inquiry.deadline) return ask_others(t, inquiry);
    const bool is_partial = inquiry.rank || inquiry.nodes;
    const std::vector<RankRecord> records = records_of_all(t.job, inquiry);
    if (t.job.phase == Phase::kStopping && t.job.cause.failure) {
        const StallVerdict link = diagnose_link_before(records, *t.job.cause.failure);
        if (link.kind != StallKind::kNone) {
            t.actions.push_back(DiagnosisFinished{inquiry.generation, by_waits(link)});
            return;
        }
    }
    if (t.job.phase == Phase::kRunning) {
        const StallVerdict verdict = new_timeout(t, records, inquiry.recent, nullptr);
        t.actions.push_back(DiagnosisFinished{inquiry.generation, by_waits(verdict)});
        const bool is_over = verdict.kind == StallKind::kLink;  // the group has failed, even if the link is back
        if (verdict.kind != StallKind::kNone)
            notify_agents(t, is_over ? verdict.text_after : verdict.text, is_over ? verdict.hint_after : verdict.hint);
        return;
    }
    if (t.job.phase == Phase::kStopping && t.job.cause.failure) {
        if (Diagnosis diagnosis = by_cause(*t.job.cause.failure, records); !diagnosis.text.empty()) {
            if (is_partial) add_number_asked(diagnosis, inquiry, t.job.group.members.size());
            t.actions.push_back(DiagnosisFinished{inquiry.generation, std::move(diagnosis)});
            return;
        }
    }
    if (is_partial) {  // the records of some ranks say nothing about a deadline
        t.actions.push_back(DiagnosisFinished{inquiry.generation, {}});
        return;
    }
    // A deadline that was reported already may be the cause, if no other has passed since.
    StallVerdict known;
    const StallVerdict verdict = new_timeout(t, records, inquiry.recent, &known);
    Diagnosis diagnosis = by_waits(verdict.kind != StallKind::kNone ? verdict : known);
    // The worker has not failed because of a link, or diagnose_link_before() would have found it.
    if (t.job.cause.failure) diagnosis.links.clear();
    t.actions.push_back(DiagnosisFinished{inquiry.generation, std::move(diagnosis)});
}

}  // namespace ddprun::diagnosis
