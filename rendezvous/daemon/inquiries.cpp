#include "rendezvous/daemon/inquiries.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ddprun::daemon {

using namespace coordinator;

namespace {

/// A summary needs what is in hand and what came before it, for every rank of a large job.
constexpr int kOperationsForVerdict = 16;
/// Stalls of one generation that are asked about; a job that has so many needs no more words.
constexpr std::size_t kMaxTold = 1'000;

bool answers(const State& state, const NodeId& id) {
    const auto node = state.nodes.find(id);
    return node != state.nodes.end() && node->second.link == Link::kConnected && node->second.join.boards;
}

bool has(const State& state, const NodeId& id, const Member& member, Rank rank) {
    const int local = number(rank) - member.assignment.rank_base;
    const auto node = state.nodes.find(id);
    return node != state.nodes.end() && local >= 0 && local < node->second.join.slots;
}

bool workers_run(const State& state) { return state.phase == Phase::kRunning || state.phase == Phase::kStopping; }

std::string why_no_workers(const State& state) {
    if (state.verdict) return "no workers run: " + state.verdict->reason;
    if (!state.told.reason.empty()) return "no workers run: " + state.told.reason;
    return "no workers run";
}

}  // namespace

InquiryActions Inquiries::stalled(const State& state, const NodeId& from, const Stalled& report, TimePoint now) {
    if (!workers_run(state) || report.generation != state.group.generation || !state.group.members.contains(from))
        return {};
    if (std::exchange(generation_, report.generation) != report.generation) {
        told_.clear();
        concluded_.clear();
    }
    if (told_.size() >= kMaxTold || !told_.emplace(report.group, report.seq, report.p2p_seq).second) return {};
    // Its peers began to wait at other times, and their clocks are not compared.
    return ask(state,
               {.generation = report.generation,
                .inspector = {},
                .patience = report.waited / 2,
                .deadline = now + kPatience,
                .missing = {},
                .boards = {}},
               std::nullopt, kOperationsForVerdict);
}

InquiryActions Inquiries::inspect(const State& state, InspectorId inspector, const Inspect& wish, TimePoint now) {
    forget(inspector);
    if (!workers_run(state)) {
        Inspected answer{state.config.run_id, state.generation, 0, {}, why_no_workers(state)};
        return {ToInspector{inspector, std::move(answer)}};
    }
    return ask(state,
               {.generation = state.group.generation,
                .inspector = inspector,
                .patience = kStuckAfter,
                .deadline = now + kPatience,
                .missing = {},
                .boards = {},
                .whole = !wish.rank},
               wish.rank, wish.operations);
}

InquiryActions Inquiries::ask(const State& state, Inquiry inquiry, std::optional<Rank> rank, int operations) {
    const std::uint64_t request = ++last_request_;
    InquiryActions actions;
    for (const auto& [id, member] : state.group.members) {
        if (rank && !has(state, id, member, *rank)) continue;
        if (!answers(state, id)) continue;
        inquiry.missing.insert(id);
        actions.push_back(ToAgent{id, ShowBoards{inquiry.generation, request, rank, operations}});
    }
    if (inquiry.missing.empty()) {
        conclude(state, inquiry, actions);
    } else {
        open_.emplace(request, std::move(inquiry));
    }
    return actions;
}

InquiryActions Inquiries::shown(const State& state, const NodeId& from, ShownBoard board) {
    const auto found = open_.find(board.request);
    if (found == open_.end() || !found->second.missing.contains(from)) return {};  // too late
    Inquiry& inquiry = found->second;
    const auto member = state.group.members.find(from);
    const bool own = member != state.group.members.end() && has(state, from, member->second, board.board.rank);
    InquiryActions actions;
    const bool last = board.last;
    if (own && board.generation == inquiry.generation) {
        if (inquiry.whole) inquiry.boards.push_back(board.board);
        if (inquiry.inspector) actions.push_back(ToInspector{*inquiry.inspector, std::move(board)});
    }
    if (last) inquiry.missing.erase(from);
    if (inquiry.missing.empty()) {
        conclude(state, inquiry, actions);
        open_.erase(found);
    }
    return actions;
}

InquiryActions Inquiries::tick(const State& state, TimePoint now) {
    InquiryActions actions;
    std::erase_if(open_, [&](const auto& entry) {
        const Inquiry& inquiry = entry.second;
        const bool over = now >= inquiry.deadline ||
                          std::ranges::none_of(inquiry.missing, [&](const NodeId& id) { return answers(state, id); });
        if (over) conclude(state, inquiry, actions);
        return over;
    });
    return actions;
}

void Inquiries::forget(InspectorId inspector) {
    std::erase_if(open_, [&](const auto& entry) { return entry.second.inspector == inspector; });
}

void Inquiries::conclude(const State& state, const Inquiry& inquiry, InquiryActions& actions) {
    std::vector<std::string> silent;
    int world_size = 0;
    for (const auto& [id, member] : state.group.members) {
        world_size = member.assignment.world_size;
        const auto node = state.nodes.find(id);
        if (inquiry.whole && (inquiry.missing.contains(id) || !answers(state, id)) && node != state.nodes.end())
            silent.push_back(node->second.join.host);
    }
    StallVerdict verdict;
    if (inquiry.whole) verdict = judge(inquiry.boards, inquiry.patience);
    if (inquiry.inspector) {
        if (inquiry.whole && verdict.kind == StallKind::kNone)
            verdict.text = fmt::format("GOING ON: no rank has been in one operation for {} s", kStuckAfter.count());
        Inspected answer{state.config.run_id, inquiry.generation, world_size, std::move(silent),
                         std::move(verdict.text)};
        actions.push_back(ToInspector{*inquiry.inspector, std::move(answer)});
        return;
    }
    if (verdict.kind == StallKind::kNone || inquiry.generation != state.group.generation) return;  // it went on
    if (!concluded_.emplace(verdict.kind, verdict.group, verdict.seq).second) return;
    for (const auto& [id, member] : state.group.members) {
        if (answers(state, id)) actions.push_back(ToAgent{id, Notice{inquiry.generation, verdict.text}});
    }
    actions.push_back(Conclusion{std::move(verdict.text)});
}

}  // namespace ddprun::daemon
