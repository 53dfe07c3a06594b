// What the boards of an inquiry add up to, and who is told.

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/coordinator/stall_death.hpp"
#include "rendezvous/coordinator/stall_error.hpp"
#include "rendezvous/coordinator/stall_hints.hpp"
#include "rendezvous/coordinator/stall_now.hpp"
#include "rendezvous/coordinator/stall_rewind.hpp"
#include "rendezvous/daemon/inquiries.hpp"

namespace ddprun::daemon {

using namespace coordinator;

namespace {

using std::chrono::nanoseconds;

constexpr std::size_t kMaxTold = 1'000;  // of different culprits

JudgedFailure by_deadline(Generation generation, const StallVerdict& verdict) {
    return {generation, verdict.text_after, {}, {}, verdict.hint_after, verdict.blamed};
}

}  // namespace

void Inquiries::conclude(const State& state, const Inquiry& inquiry, TimePoint now, InquiryActions& actions) {
    if (inquiry.after_failure) return conclude_failure(state, inquiry, now, actions);
    if (inquiry.about_the_last) return conclude_the_last(state, inquiry, actions);
    const bool current = inquiry.generation == state.group.generation;
    const std::vector<RankBoard> boards = boards_of(state, inquiry);
    if (inquiry.inspector) return answer(state, inquiry, inquiry.whole ? judge_now(boards, kStuckAfter) : "", actions);
    StallVerdict verdict;
    if (current) verdict = judge(boards, inquiry.patience);
    stall_is_open_ = false;
    const bool news = current && verdict.kind != StallKind::kNone && is_news(verdict, inquiry.patience, now);
    pause_ = news ? nanoseconds(kPause) : std::min<nanoseconds>(pause_ * 2, kMaxPause);
    quiet_until_ = now + pause_;
    if (news) tell_all(state, std::move(verdict.text), verdict.hint, actions);
}

void Inquiries::tell_all(const State& state, std::string text, const std::string& hint, InquiryActions& actions) {
    for (const auto& [id, member] : state.group.members) {
        if (answers(state, id)) actions.push_back(ToAgent{id, Notice{state.group.generation, with_hint(text, hint)}});
    }
    actions.push_back(Conclusion{std::move(text)});
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
    if (inquiry.generation != state.group.generation) {
        actions.push_back(JudgedFailure{inquiry.generation, {}});
        return;
    }
    const std::vector<RankBoard> boards = boards_of(state, inquiry);
    if (state.phase == Phase::kRunning) return tell_timeout(state, inquiry, boards, now, actions);
    if (state.phase == Phase::kStopping && state.cause.failure) {
        if (ErrorVerdict error = judge_error(boards, *state.cause.failure); !error.text.empty()) {
            actions.push_back(JudgedFailure{inquiry.generation, error.text, state.cause.failure->rank, error.text,
                                            std::move(error.hint), std::move(error.blamed)});
            return;
        }
        DeathVerdict death = judge_death(boards, *state.cause.failure);
        if (!death.text.empty()) {
            actions.push_back(JudgedFailure{inquiry.generation, std::move(death.text), state.cause.failure->rank,
                                            std::move(death.detail)});
            return;
        }
    }
    // What people know already may be why, if nothing else has happened since.
    StallVerdict known;
    const StallVerdict verdict = new_timeout(boards, inquiry.recent, now, &known);
    actions.push_back(by_deadline(inquiry.generation, verdict.kind != StallKind::kNone ? verdict : known));
}

/// The boards were read up to kFailurePatience after they were asked for, this time and the time before: a deadline
/// that passed in between is as old by then. `known`: if not null, the first one that is no news.
StallVerdict Inquiries::new_timeout(const std::vector<RankBoard>& boards, nanoseconds recent, TimePoint now,
                                    StallVerdict* known) {
    return judge_timeout(boards, recent + kFailurePatience, [&](const StallVerdict& candidate) {
        const bool is_news = timeout_is_news(candidate, now);
        if (!is_news && known != nullptr && known->kind == StallKind::kNone) *known = candidate;
        return is_news;
    });
}

void Inquiries::tell_timeout(const State& state, const Inquiry& inquiry, const std::vector<RankBoard>& boards,
                             TimePoint now, InquiryActions& actions) {
    const StallVerdict verdict = new_timeout(boards, inquiry.recent, now, nullptr);
    actions.push_back(by_deadline(inquiry.generation, verdict));
    if (verdict.kind == StallKind::kNone) return;
    for (const auto& [id, member] : state.group.members) {
        if (answers(state, id))
            actions.push_back(ToAgent{id, Notice{inquiry.generation, with_hint(verdict.text, verdict.hint)}});
    }
}

/// Remembers it. Of one operation people hear once, though peers fail of it later, too, when some of those who were
/// late have come; but a group that was made again under its name counts from one again.
bool Inquiries::timeout_is_news(const StallVerdict& verdict, TimePoint now) {
    std::erase_if(told_timeouts_, [&](const auto& entry) { return now >= entry.second + kQuiet; });
    if (told_timeouts_.size() >= kMaxTold) told_timeouts_.clear();
    const Occasion occasion{verdict.seq, verdict.p2p_seq, verdict.waiter};
    return told_timeouts_.insert_or_assign({verdict.group, occasion}, now).second;
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

void Inquiries::answer(const State& state, const Inquiry& inquiry, std::string verdict, InquiryActions& actions) const {
    std::vector<std::string> silent;
    if (inquiry.generation != state.group.generation) {
        verdict = "the workers were started again meanwhile: look once more";
    } else if (inquiry.whole) {
        for (const auto& [id, member] : state.group.members) {
            const auto node = state.nodes.find(id);
            if ((inquiry.missing.contains(id) || !answers(state, id)) && node != state.nodes.end())
                silent.push_back(node->second.join.host);
        }
    }
    Inspected end{state.config.run_id, inquiry.generation, inquiry.world_size, std::move(silent), std::move(verdict)};
    actions.push_back(ToInspector{*inquiry.inspector, std::move(end)});
}

}  // namespace ddprun::daemon
