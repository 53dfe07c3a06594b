#include "rendezvous/diagnosis/inquiry/transition.hpp"

#include <set>
#include <utility>

#include "rendezvous/diagnosis/hints.hpp"

namespace ddprun::diagnosis {

using coordinator::Link;
using coordinator::Phase;

bool workers_run(const coordinator::State& job) {
    return job.phase == Phase::kRunning || job.phase == Phase::kStopping;
}

bool answers(const coordinator::State& job, const NodeId& id) {
    const auto node = job.nodes.find(id);
    return node != job.nodes.end() && node->second.link == Link::kConnected && node->second.join.records;
}

bool has_rank(const coordinator::State& job, const NodeId& id, const coordinator::Member& member, Rank rank) {
    const int local = number(rank) - member.assignment.rank_base;
    const auto node = job.nodes.find(id);
    return node != job.nodes.end() && local >= 0 && local < slots_of(node->second.join);
}

std::vector<RankRecord> records_of_all(const coordinator::State& job, const Inquiry& inquiry) {
    std::vector<RankRecord> records = inquiry.records;
    std::set<Rank> received;
    for (const RankRecord& record : records) received.insert(record.rank);
    for (const auto& [id, member] : job.group.members) {
        const auto node = job.nodes.find(id);
        if (node == job.nodes.end()) continue;  // lost since
        if (inquiry.nodes && !inquiry.nodes->contains(id)) continue;
        const int slots = slots_of(node->second.join);
        for (int local = 0; local < slots; ++local) {
            const Rank rank{member.assignment.rank_base + local};
            if (received.contains(rank)) continue;
            RankRecord& silent = records.emplace_back();
            silent.rank = rank;
            silent.host = node->second.join.host;
        }
    }
    return records;
}

Occasion occasion_of(const StallVerdict& verdict) { return {verdict.seq, verdict.p2p_seq, verdict.waiter}; }

void notify_agents(InquiryTransition& t, const std::string& text, const std::string& hint) {
    for (const auto& [id, member] : t.job.group.members) {
        if (answers(t.job, id)) t.send(id, Notice{t.job.group.generation, with_hint(text, hint)});
    }
}

void forget_older_generations(InquiryTransition& t, Generation current) {
    if (std::exchange(t.state.generation, current) == current) return;
    t.state.stalls = {};
    t.state.failures = {};
    t.state.last_ranks = {};
    t.state.overdue_asked = false;
}

}  // namespace ddprun::diagnosis
