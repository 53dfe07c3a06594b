// Who asks for boards, who is asked, and when an inquiry is over. What they add up to: inquiries_conclude.cpp.

#include "rendezvous/daemon/inquiries.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "rendezvous/coordinator/stall_rewind.hpp"

namespace ddprun::daemon {

using namespace coordinator;

namespace {

using std::chrono::nanoseconds;

void append(InquiryActions& actions, InquiryActions more) { std::ranges::move(more, std::back_inserter(actions)); }

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

bool Inquiries::answers(const State& state, const NodeId& id) {
    const auto node = state.nodes.find(id);
    return node != state.nodes.end() && node->second.link == Link::kConnected && node->second.join.boards;
}

InquiryActions Inquiries::stalled(const State& state, const NodeId& from, const Stalled& report, TimePoint now) {
    if (!workers_run(state) || report.generation != state.group.generation || !state.group.members.contains(from))
        return {};
    forget_older_generations(report.generation);
    if (report.timed_out) {
        timeout_waits_ = true;
        return ask_about_timeouts(state, now);
    }
    // Its peers began to wait at other times, and their clocks are not compared.
    const nanoseconds patience = report.waited / 2;
    if (!stall_is_open_ && now >= quiet_until_) return ask_about_stall(state, patience, now);
    remind(patience, std::max(now, quiet_until_));
    return {};
}

InquiryActions Inquiries::ask_about_stall(const State& state, nanoseconds patience, TimePoint now) {
    reminder_.reset();
    stall_is_open_ = true;
    return ask(state,
               {.generation = state.group.generation,
                .inspector = {},
                .patience = patience,
                .deadline = now + kPatience,
                .missing = {},
                .boards = {}},
               std::nullopt, kOperationsShownOfAll, now);
}

InquiryActions Inquiries::failed(const State& state, TimePoint now) {
    if (state.phase != Phase::kStopping || !state.cause.failure) return {};
    // Also about one that says that a peer was gone: that one may have failed by a deadline and be no cause, for it was
    // told to end before its own end was seen.
    const FailureReport& failure = *state.cause.failure;
    if (failure.pid == 0 || failure.activity.empty()) return {};
    forget_older_generations(state.group.generation);
    if (std::exchange(failed_, failure.rank) == failure.rank) return {};
    return ask_about_failure(state, kRecentTimeout, now);
}

/// One inquiry looks at everything: what fails soon after is asked about when the peers have failed, too.
InquiryActions Inquiries::ask_about_timeouts(const State& state, TimePoint now) {
    if (!timeout_waits_ || failure_is_open() || now < timeouts_asked_at_ + kPause) return {};
    timeout_waits_ = false;
    return ask_about_failure(state, now - std::exchange(timeouts_asked_at_, now), now);
}

bool Inquiries::failure_is_open() const {
    return std::ranges::any_of(open_, [](const auto& entry) { return entry.second.after_failure; });
}

InquiryActions Inquiries::ask_about_failure(const State& state, nanoseconds recent, TimePoint now) {
    if (failure_is_open()) return {};  // it will look at deadlines, and at what is the cause by then
    InquiryActions actions{JudgingFailure{state.group.generation}};
    append(actions, ask(state,
                        {.generation = state.group.generation,
                         .inspector = {},
                         .deadline = now + kFailurePatience,
                         .missing = {},
                         .boards = {},
                         .after_failure = true,
                         .recent = recent},
                        std::nullopt, kOperationsShownOfAll, now));
    return actions;
}

/// One inquiry looks at everything: of several stalls that are reported meanwhile, one is asked about.
void Inquiries::remind(nanoseconds patience, TimePoint when) {
    if (!reminder_) reminder_ = Reminder{patience, when};
    reminder_->patience = std::min(reminder_->patience, patience);
    reminder_->when = std::min(reminder_->when, when);
}

void Inquiries::forget_older_generations(Generation now) {
    if (std::exchange(generation_, now) == now) return;
    told_.clear();
    reminder_.reset();
    quiet_until_ = timeouts_asked_at_ = {};
    timeout_waits_ = false;
    told_timeouts_.clear();
    failed_.reset();
    pause_ = last_pause_ = kPause;
    last_asked_at_ = {};
    last_told_.reset();
}

InquiryActions Inquiries::inspect(const State& state, InspectorId inspector, const Inspect& wish, TimePoint now) {
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
               wish.rank, wish.rank ? wish.operations : std::min(wish.operations, kOperationsShownOfAll), now);
}

InquiryActions Inquiries::ask(const State& state, Inquiry inquiry, std::optional<Rank> rank, int operations,
                              TimePoint now) {
    const std::uint64_t request = ++last_request_;
    InquiryActions actions;
    for (const auto& [id, member] : state.group.members) {
        inquiry.world_size = member.assignment.world_size;
        if (rank && !has(state, id, member, *rank)) continue;
        if (!answers(state, id) || (inquiry.about_the_last && member.succeeded)) continue;
        inquiry.missing.insert(id);
        actions.push_back(ToAgent{id, ShowBoards{inquiry.generation, request, rank, operations}});
    }
    if (inquiry.missing.empty()) {
        conclude(state, inquiry, now, actions);
    } else {
        open_.emplace(request, std::move(inquiry));
    }
    return actions;
}

InquiryActions Inquiries::shown(const State& state, const NodeId& from, ShownBoard board, TimePoint now) {
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
        conclude(state, inquiry, now, actions);
        open_.erase(found);
    }
    return actions;
}

InquiryActions Inquiries::tick(const State& state, TimePoint now) {
    InquiryActions actions;
    std::erase_if(open_, [&](const auto& entry) {
        const Inquiry& inquiry = entry.second;
        const bool over = now >= inquiry.deadline || inquiry.generation != state.group.generation ||
                          std::ranges::none_of(inquiry.missing, [&](const NodeId& id) { return answers(state, id); });
        if (over) conclude(state, inquiry, now, actions);
        return over;
    });
    if (state.phase == Phase::kRunning && generation_ == state.group.generation) {
        append(actions, ask_about_timeouts(state, now));
    }
    append(actions, ask_about_the_last(state, now));
    if (!reminder_ || stall_is_open_ || now < std::max(reminder_->when, quiet_until_)) return actions;
    if (workers_run(state) && generation_ == state.group.generation) {
        append(actions, ask_about_stall(state, reminder_->patience, now));
    }
    reminder_.reset();
    return actions;
}

void Inquiries::forget(InspectorId inspector) {
    std::erase_if(open_, [&](const auto& entry) { return entry.second.inspector == inspector; });
}

bool Inquiries::is_open(InspectorId inspector) const {
    return std::ranges::any_of(open_, [&](const auto& entry) { return entry.second.inspector == inspector; });
}

}  // namespace ddprun::daemon
