#include "rendezvous/daemon/inquiries.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "rendezvous/coordinator/stall_death.hpp"
#include "rendezvous/coordinator/stall_rewind.hpp"

namespace ddprun::daemon {

using namespace coordinator;

namespace {

using std::chrono::nanoseconds;

constexpr std::size_t kMaxTold = 1'000;  // of different culprits

void append(InquiryActions& actions, InquiryActions more) { std::ranges::move(more, std::back_inserter(actions)); }

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
    if (state.phase != Phase::kStopping || !state.cause.failure || !may_be_judged(*state.cause.failure)) return {};
    forget_older_generations(state.group.generation);
    if (std::exchange(failed_, state.cause.failure->rank) == state.cause.failure->rank) return {};
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
    pause_ = kPause;
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
        if (!answers(state, id)) continue;
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

void Inquiries::conclude(const State& state, const Inquiry& inquiry, TimePoint now, InquiryActions& actions) {
    if (inquiry.after_failure) return conclude_failure(state, inquiry, now, actions);
    const bool current = inquiry.generation == state.group.generation;
    StallVerdict verdict;
    if (inquiry.whole && current) verdict = judge(boards_of(state, inquiry), inquiry.patience);
    if (inquiry.inspector) return answer(state, inquiry, std::move(verdict), actions);
    stall_is_open_ = false;
    const bool news = current && verdict.kind != StallKind::kNone && is_news(verdict, inquiry.patience, now);
    pause_ = news ? nanoseconds(kPause) : std::min<nanoseconds>(pause_ * 2, kMaxPause);
    quiet_until_ = now + pause_;
    if (!news) return;
    for (const auto& [id, member] : state.group.members) {
        if (answers(state, id)) actions.push_back(ToAgent{id, Notice{inquiry.generation, verdict.text}});
    }
    actions.push_back(Conclusion{std::move(verdict.text)});
}

std::vector<RankBoard> Inquiries::boards_of(const State& state, const Inquiry& inquiry) {
    std::vector<RankBoard> boards = inquiry.boards;
    std::set<Rank> shown;
    for (const RankBoard& board : boards) shown.insert(board.rank);
    for (const auto& [id, member] : state.group.members) {
        const auto node = state.nodes.find(id);
        if (node == state.nodes.end()) continue;  // lost since
        for (int local = 0; local < node->second.join.slots; ++local) {
            const Rank rank{member.assignment.rank_base + local};
            if (shown.contains(rank)) continue;
            RankBoard& silent = boards.emplace_back();
            silent.rank = rank;
            silent.host = node->second.join.host;
        }
    }
    return boards;
}

/// A job that ends of it has the line in its verdict, one that goes on is told by a notice.
void Inquiries::conclude_failure(const State& state, const Inquiry& inquiry, TimePoint now, InquiryActions& actions) {
    const bool current = inquiry.generation == state.group.generation;
    const std::vector<RankBoard> boards = boards_of(state, inquiry);
    if (current && state.phase == Phase::kRunning) return tell_timeout(state, inquiry, boards, now, actions);
    if (current && state.phase == Phase::kStopping && state.cause.failure) {
        DeathVerdict death = judge_death(boards, *state.cause.failure);
        if (!death.text.empty()) {
            actions.push_back(JudgedFailure{inquiry.generation, std::move(death.text), state.cause.failure->rank,
                                            std::move(death.detail)});
            return;
        }
    }
    actions.push_back(JudgedFailure{inquiry.generation, judge_timeout(boards, inquiry.recent).text});
}

/// The boards were read up to kFailurePatience after they were asked for, this time and the time before: a deadline
/// that passed in between is as old by then.
void Inquiries::tell_timeout(const State& state, const Inquiry& inquiry, const std::vector<RankBoard>& boards,
                             TimePoint now, InquiryActions& actions) {
    const StallVerdict verdict =
        judge_timeout(boards, inquiry.recent + kFailurePatience,
                      [&](const StallVerdict& candidate) { return timeout_is_news(candidate, now); });
    actions.push_back(JudgedFailure{inquiry.generation, verdict.text});
    if (verdict.kind == StallKind::kNone) return;
    for (const auto& [id, member] : state.group.members) {
        if (answers(state, id)) actions.push_back(ToAgent{id, Notice{inquiry.generation, verdict.text}});
    }
}

/// Remembers it. Of one operation people hear once, though peers fail of it later, too; but a group that was made again
/// under its name counts from one again.
bool Inquiries::timeout_is_news(const StallVerdict& verdict, TimePoint now) {
    std::erase_if(told_timeouts_, [&](const auto& entry) { return now >= entry.second + kQuiet; });
    if (told_timeouts_.size() >= kMaxTold) told_timeouts_.clear();
    const Culprit culprit{verdict.kind, verdict.group, verdict.ranks};
    const Occasion occasion{verdict.seq, verdict.p2p_seq, verdict.waiter};
    return told_timeouts_.insert_or_assign({culprit, occasion}, now).second;
}

/// Ranks that are stuck in different operations may wait for the same ones, and ranks that are late in every step are
/// told of now and then only. What is held back is looked at again: it may be the stall that does not end.
bool Inquiries::is_news(const StallVerdict& verdict, nanoseconds patience, TimePoint now) {
    std::erase_if(told_, [&](const auto& entry) { return now >= entry.second.until + kMaxQuiet; });
    if (told_.size() >= kMaxTold) told_.clear();
    auto [entry, is_new] = told_.try_emplace({verdict.kind, verdict.group, verdict.ranks});
    Told& told = entry->second;
    const Occasion occasion{verdict.seq, verdict.p2p_seq, verdict.waiter};
    if (!is_new && told.occasion == occasion) return false;
    if (!is_new && now < told.until) {
        remind(patience, told.until);
        return false;
    }
    told.occasion = occasion;
    told.quiet = is_new ? nanoseconds(kQuiet) : std::min<nanoseconds>(told.quiet * 2, kMaxQuiet);
    told.until = now + told.quiet;
    return true;
}

void Inquiries::answer(const State& state, const Inquiry& inquiry, StallVerdict verdict,
                       InquiryActions& actions) const {
    std::vector<std::string> silent;
    if (inquiry.generation != state.group.generation) {
        verdict.text = "the workers were started again meanwhile: look once more";
    } else if (inquiry.whole) {
        for (const auto& [id, member] : state.group.members) {
            const auto node = state.nodes.find(id);
            if ((inquiry.missing.contains(id) || !answers(state, id)) && node != state.nodes.end())
                silent.push_back(node->second.join.host);
        }
        if (verdict.kind == StallKind::kNone)
            verdict.text = fmt::format("GOING ON: no rank has been in one operation for {} s", kStuckAfter.count());
    }
    Inspected end{state.config.run_id, inquiry.generation, inquiry.world_size, std::move(silent),
                  std::move(verdict.text)};
    actions.push_back(ToInspector{*inquiry.inspector, std::move(end)});
}

}  // namespace ddprun::daemon
