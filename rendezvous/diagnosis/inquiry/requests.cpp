#include "rendezvous/diagnosis/inquiry/requests.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "rendezvous/diagnosis/inquiry/failures.hpp"
#include "rendezvous/diagnosis/inquiry/inspections.hpp"
#include "rendezvous/diagnosis/inquiry/last_ranks.hpp"
#include "rendezvous/diagnosis/inquiry/overdue.hpp"
#include "rendezvous/diagnosis/inquiry/stalls.hpp"

namespace ddprun::diagnosis {
namespace {

const char* to_string(Subject subject) {
    switch (subject) {
        case Subject::kStall: return "a stall";
        case Subject::kFailure: return "a failure";
        case Subject::kLastRanks: return "the last ranks";
        case Subject::kOverdue: return "ranks that are overdue";
        case Subject::kInspector: return "an inspector";
    }
    return "unknown";
}

void conclude(InquiryTransition& t, const Inquiry& inquiry) {
    switch (inquiry.subject) {
        case Subject::kStall: return conclude_stall(t, inquiry);
        case Subject::kFailure: return conclude_failure(t, inquiry);
        case Subject::kLastRanks: return conclude_last_ranks(t, inquiry);
        case Subject::kOverdue: return conclude_overdue(t, inquiry);
        case Subject::kInspector: return answer_inspector(t, inquiry);
    }
}

bool is_over(const InquiryTransition& t, const Inquiry& inquiry) {
    return t.now >= inquiry.deadline || inquiry.generation != t.job.group.generation ||
           std::ranges::none_of(inquiry.missing, [&](const NodeId& id) { return answers(t.job, id); });
}

}  // namespace

bool is_open(const InquiryState& state, Subject subject) {
    return std::ranges::any_of(state.open, [&](const auto& entry) { return entry.second.subject == subject; });
}

void open_inquiry(InquiryTransition& t, Inquiry inquiry, int operations) {
    const std::uint64_t request = ++t.state.last_request;
    inquiry.generation = t.job.group.generation;
    for (const auto& [id, member] : t.job.group.members) {
        inquiry.world_size = member.assignment.world_size;
        if (inquiry.nodes && !inquiry.nodes->contains(id)) continue;
        if (inquiry.rank && !has_rank(t.job, id, member, *inquiry.rank)) continue;
        if (!answers(t.job, id) || (inquiry.subject == Subject::kLastRanks && member.succeeded)) continue;
        inquiry.missing.insert(id);
        t.send(id, RequestRecords{inquiry.generation, request, inquiry.rank, operations});
    }
    t.say(fmt::format("request {} about {} to {} of {} nodes", request, to_string(inquiry.subject),
                      inquiry.missing.size(), t.job.group.members.size()));
    if (inquiry.missing.empty()) {
        conclude(t, inquiry);
    } else {
        t.state.open.emplace(request, std::move(inquiry));
    }
}

void record_received(InquiryTransition& t, RecordReceived event) {
    RecordReply& reply = event.record;
    const auto found = t.state.open.find(reply.request);
    if (found == t.state.open.end() || !found->second.missing.contains(event.node)) return;
    Inquiry& inquiry = found->second;
    const auto member = t.job.group.members.find(event.node);
    const bool own =
        member != t.job.group.members.end() && has_rank(t.job, event.node, member->second, reply.record.rank);
    if (reply.last) inquiry.missing.erase(event.node);
    if (own && reply.generation == inquiry.generation) {
        if (inquiry.subject != Subject::kInspector) {
            inquiry.records.push_back(std::move(reply.record));
        } else {
            if (!inquiry.rank) inquiry.records.push_back(reply.record);
            t.actions.push_back(ToInspector{inquiry.inspector, std::move(reply)});
        }
    }
    if (!inquiry.missing.empty()) return;
    t.say(fmt::format("request {} is answered by all nodes", found->first));
    const auto ended = t.state.open.extract(found);
    conclude(t, ended.mapped());
}

void end_overdue_inquiries(InquiryTransition& t) {
    for (auto at = t.state.open.begin(); at != t.state.open.end();) {
        const auto inquiry = at++;
        if (!is_over(t, inquiry->second)) continue;
        t.say(fmt::format("request {} ends without the answer of {} nodes", inquiry->first,
                          inquiry->second.missing.size()));
        const auto ended = t.state.open.extract(inquiry);
        conclude(t, ended.mapped());  // opens no inquiry
    }
}

}  // namespace ddprun::diagnosis
