#include "rendezvous/coordinator/stall_error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "rendezvous/coordinator/stall_death.hpp"
#include "rendezvous/coordinator/stall_hints.hpp"
#include "rendezvous/coordinator/stall_words.hpp"

namespace ddprun::coordinator {
namespace {

using std::chrono::nanoseconds;

/// Boards of several hosts are not read at one moment, nor are those of one host.
constexpr nanoseconds kSameMoment = std::chrono::seconds(1);
constexpr nanoseconds kSameMomentHere = std::chrono::milliseconds(5);

nanoseconds slack(const RankBoard& one, const RankBoard& other) {
    return one.host == other.host ? kSameMomentHere : kSameMoment;
}

/// By group and rank of the job: the newest group of each name.
using Groups = std::map<std::string, std::map<int, StallMember>>;

Groups groups_of(const std::vector<RankBoard>& boards) {
    Groups groups;
    for (const RankBoard& board : boards) {
        for (std::size_t i = 0; i < board.view.groups.size(); ++i) {
            const BoardGroup& group = board.view.groups[i];
            groups[group.name][number(board.rank)] = {&board, &group, static_cast<int>(i)};
        }
    }
    return groups;
}

/// Of a rank that shows no board its peers' lists of members tell.
bool is_member(const std::map<int, StallMember>& members, int rank) {
    return members.contains(rank) ||
           std::ranges::any_of(members, [&](const auto& entry) { return has_member(*entry.second.group, rank); });
}

/// "MISMATCH of a send and its receive in group 'world': rank 0 (node a) send #1 f32[4] peer 1 tag 5, rank 1 (node b)
/// recv #1 f32[5] peer 0 tag 5". The receiver's board has both; that of `member` is one, if it has.
ErrorVerdict judge_misfit(const std::string& group, int rank, const StallMember& member, const BoardsByRank& all,
                          nanoseconds& oldest) {
    const auto& operations = member.board->view.operations;
    for (const BoardOperation& message : operations) {
        const bool misfit =
            message.group == member.index && is_arrival(message) && message.mismatch && message.ended_ago;
        if (!misfit || *message.ended_ago > kRecentTimeout || *message.ended_ago <= oldest) continue;
        const auto receive = std::ranges::find_if(operations, [&](const BoardOperation& one) {
            return one.group == member.index && one.op == "recv" && one.mismatch && one.peer == message.peer &&
                   one.transfer_tag == message.transfer_tag;
        });
        if (receive == operations.end()) continue;
        oldest = *message.ended_ago;
        BoardOperation sent = message;
        sent.op = "send";
        sent.peer = member.group->rank;
        const int sender = world_rank(*member.group, message.peer);
        return {fmt::format("MISMATCH of a send and its receive in group '{}': {} {}, {} {}", group,
                            name_ranks({sender}, all), describe(sent), name_ranks({rank}, all), describe(*receive)),
                kMisfitHint,
                {sender, rank}};
    }
    return {};
}

/// Operations that the group refused because it had failed have the same error; of those all called the same.
/// Who is no member of the group has ended of something else.
ErrorVerdict judge_mismatch(const Groups& groups, const BoardsByRank& all, int dead) {
    ErrorVerdict verdict;
    nanoseconds oldest{-1};
    for (const auto& [name, members] : groups) {
        if (!is_member(members, dead)) continue;
        const GroupWaits group(name, members);
        for (const auto& [rank, member] : members) {
            if (ErrorVerdict misfit = judge_misfit(name, rank, member, all, oldest); !misfit.text.empty())
                verdict = std::move(misfit);
            for (const BoardOperation& operation : member.board->view.operations) {
                const bool failed_of_it = operation.group == member.index && operation.p2p_seq == 0 &&
                                          operation.mismatch && operation.ended_ago;
                if (!failed_of_it || *operation.ended_ago > kRecentTimeout || *operation.ended_ago <= oldest) continue;
                const StallWait wait{rank, member, &operation};
                if (!is_mismatch(group, wait)) continue;
                oldest = *operation.ended_ago;
                const StallFinding finding{StallKind::kMismatch, &group, &wait};
                verdict = {describe(finding, all, Tense::kPast), hint_for(finding, all, Tense::kPast), blamed(finding)};
            }
        }
    }
    return verdict;
}

struct Abort {
    int rank = 0;
    StallMember who;
};

/// Who gives a group up after an operation has failed does so because of that.
bool is_first_error(const StallMember& member) {
    const nanoseconds at = *member.group->aborted_ago;
    return at <= kRecentTimeout && std::ranges::none_of(member.board->view.operations, [&](const BoardOperation& o) {
               return o.failed && o.ended_ago && *o.ended_ago > at;
           });
}

/// Whether `dead`, whose board is `own`, may have ended of that. The one that gave the group up may have gone on, and
/// have been killed of something else later; any other one has seen an operation fail of it, and nothing succeed since.
bool explains(const Abort& abort, const std::map<int, StallMember>& members, const RankBoard* own,
              const FailureReport& dead) {
    if (own == nullptr) return false;
    const nanoseconds at = *abort.who.group->aborted_ago;
    if (abort.rank == number(dead.rank))
        return !is_violent(dead.status) || (own->ended_ago && *own->ended_ago + kSameMoment >= at);
    if (is_violent(dead.status) || !own->ended_ago || !is_member(members, number(dead.rank))) return false;
    const nanoseconds latest = at + slack(*own, *abort.who.board);
    const BoardOperation* const last = ended_last(own->view);
    return *own->ended_ago <= latest && last != nullptr && last->failed && *last->ended_ago <= latest;
}

std::string were_in(const std::vector<int>& ranks, const BoardOperation& operation, const BoardsByRank& all) {
    return fmt::format("; {} {} in {}", name_ranks(ranks, all), ranks.size() == 1 ? "was" : "were",
                       describe(operation));
}

/// "; ranks 0-2 (node a) were in #5 all_reduce sum f32[4]"; those in the oldest collective that ended of it.
std::string who_was_in_it(const std::map<int, StallMember>& members, const Abort& abort, const BoardsByRank& all) {
    const nanoseconds at = *abort.who.group->aborted_ago;
    std::map<std::uint64_t, std::pair<const BoardOperation*, std::vector<int>>> by_seq;
    for (const auto& [rank, member] : members) {
        const nanoseconds apart = slack(*member.board, *abort.who.board);
        for (const BoardOperation& operation : member.board->view.operations) {
            const bool in_it = operation.group == member.index && operation.p2p_seq == 0 && operation.started_ago &&
                               *operation.started_ago + apart >= at &&
                               (!operation.ended_ago || (operation.failed && *operation.ended_ago <= at + apart));
            if (!in_it) continue;
            auto& [first, ranks] = by_seq[operation.seq];
            first = &operation;
            ranks.push_back(rank);
            break;
        }
    }
    if (by_seq.empty()) return "";
    const auto& [operation, ranks] = by_seq.begin()->second;
    return were_in(ranks, *operation, all);
}

ErrorVerdict judge_abort(const Groups& groups, const BoardsByRank& all, const RankBoard* own,
                         const FailureReport& dead) {
    std::optional<Abort> first;
    const std::map<int, StallMember>* members = nullptr;
    for (const auto& [name, of_group] : groups) {
        for (const auto& [rank, member] : of_group) {
            if (!member.group->aborted_ago || !is_first_error(member)) continue;
            const Abort abort{rank, member};
            if (!explains(abort, of_group, own, dead)) continue;
            if (first && *member.group->aborted_ago <= *first->who.group->aborted_ago) continue;
            first = abort;
            members = &of_group;
        }
    }
    if (!first) return {};
    const BoardGroup& group = *first->who.group;
    std::string text = fmt::format("ABORTED group '{}': {} gave it up: '{}'", group.name,
                                   name_ranks({first->rank}, all), group.abort_reason);
    text += who_was_in_it(*members, *first, all);
    const std::string& phase = first->who.board->view.phase;
    if (!phase.empty()) text += fmt::format("; rank {} in phase '{}'", first->rank, phase);
    return {std::move(text), abort_hint(first->rank), {first->rank}};
}

/// "exited with code 0"; empty: it has not ended.
std::string how_ended(const RankBoard& board) {
    return board.ended ? board.process.substr(0, board.process.find(',')) : "";
}

/// Whether it was in flight when the member let go of its group, and has failed of that.
bool was_let_go(const StallMember& member, const BoardOperation& operation) {
    const auto& left = member.group->left_ago;
    return operation.group == member.index && operation.failed && !is_arrival(operation) && left &&
           operation.ended_ago && *operation.ended_ago <= *left;
}

/// How long ago a member was gone as if all were done: it let go of the group, or its process ended before that. Empty:
/// it is there, or an operation had failed before, or an exception ended it.
std::optional<nanoseconds> gone_ago(const StallMember& member) {
    const BoardGroup& group = *member.group;
    const bool failed = std::ranges::any_of(member.board->view.operations, [&](const BoardOperation& operation) {
        return operation.group == member.index && operation.failed && !is_arrival(operation) &&
               !was_let_go(member, operation);
    });
    if (failed || group.aborted_ago || group.left_by_exception) return std::nullopt;
    const RankBoard& board = *member.board;
    auto gone = group.left_ago;
    if (!gone && how_ended(board) == "exited with code 0") gone = board.ended_ago;
    if (gone && board.process_before_ago && *board.process_before_ago >= *gone) return std::nullopt;  // it was told to
    return gone;
}

/// What a rank failed in without the leaver, its oldest such operation; null: nothing.
const BoardOperation* failed_without(const StallMember& member, int leaver, const BoardGroup& left) {
    const auto needs_it = [&](const BoardOperation& operation) {
        if (operation.group != member.index || !operation.failed || operation.timed_out || is_arrival(operation))
            return false;
        if (was_let_go(member, operation)) return false;  // it has left, too
        if (operation.p2p_seq == 0) return left.done < operation.seq;
        return operation.peer >= 0 && world_rank(*member.group, operation.peer) == leaver;
    };
    const auto& operations = member.board->view.operations;
    const auto found = std::ranges::find_if(operations, needs_it);
    return found != operations.end() ? &*found : nullptr;
}

/// What the leaver had called and not waited for, from number `needed` on: what came before it had given all that peers
/// take of it. Null: nothing.
const BoardOperation* left_in_flight(const StallMember& leaver, std::uint64_t needed) {
    const auto& operations = leaver.board->view.operations;
    const auto found = std::ranges::find_if(operations, [&](const BoardOperation& one) {
        return one.p2p_seq == 0 && one.seq > leaver.group->done && one.seq >= needed && was_let_go(leaver, one);
    });
    return found != operations.end() ? &*found : nullptr;
}

std::string describe_leaving(const StallMember& leaver, const BoardOperation* in_flight) {
    const BoardGroup& group = *leaver.group;
    const std::string end = how_ended(*leaver.board);
    std::string text = fmt::format("LEFT rank {} (node {}{}{}): let go of group '{}' ", number(leaver.board->rank),
                                   leaver.board->host, end.empty() ? "" : ", ", end, group.name);
    if (group.done == 0) {
        text += "before any collective was done";
    } else {
        const BoardOperation* const last = find_collective(leaver, group.done);
        text += "after " + (last != nullptr ? describe(*last) : fmt::format("#{}", group.done));
    }
    return in_flight == nullptr ? text : text + fmt::format(", with {} in flight", describe(*in_flight));
}

/// "LEFT …; ranks 0, 2 (node a) were in #6 …"; empty: nobody needed that one.
ErrorVerdict judge_leaver(const StallMember& leaver, const std::map<int, StallMember>& members,
                          const BoardsByRank& all) {
    std::vector<int> ranks;
    const BoardOperation* what = nullptr;
    for (const auto& [rank, member] : members) {
        const BoardOperation* failed = failed_without(member, number(leaver.board->rank), *leaver.group);
        if (failed == nullptr || (what != nullptr && describe(*failed) != describe(*what))) continue;
        what = failed;
        ranks.push_back(rank);
    }
    if (what == nullptr) return {};
    const BoardOperation* const in_flight = left_in_flight(leaver, what->p2p_seq == 0 ? what->seq : 0);
    return {describe_leaving(leaver, in_flight) + were_in(ranks, *what, all),
            in_flight != nullptr ? kInFlightHint : kStepsHint,
            {number(leaver.board->rank)}};
}

/// `dead` has seen its group fail, which a member had left before as if all were done. It may have failed in something
/// that the leaver has done, for another one that needed it has taken it along. Of several that had left the first that
/// somebody needed counts.
ErrorVerdict judge_absence(const Groups& groups, const BoardsByRank& all, const RankBoard* own,
                           const FailureReport& dead) {
    const BoardOperation* const last = own != nullptr ? ended_last(own->view) : nullptr;
    if (last == nullptr || !last->failed || last->timed_out || last->group < 0) return {};
    const auto index = static_cast<std::size_t>(last->group);
    if (index >= own->view.groups.size()) return {};
    const auto& members = groups.at(own->view.groups[index].name);
    if (members.at(number(dead.rank)).index != last->group) return {};  // of an older group of that name
    std::vector<std::pair<nanoseconds, const StallMember*>> leavers;
    for (const auto& [rank, member] : members) {
        const auto gone = gone_ago(member);
        if (rank == number(dead.rank) || !gone || *gone > kRecentTimeout) continue;
        if (*gone + slack(*member.board, *own) >= *last->ended_ago) leavers.emplace_back(*gone, &member);
    }
    std::ranges::stable_sort(leavers, std::greater(), &std::pair<nanoseconds, const StallMember*>::first);
    for (const auto& [gone, leaver] : leavers) {
        if (ErrorVerdict verdict = judge_leaver(*leaver, members, all); !verdict.text.empty()) return verdict;
    }
    return {};  // that was no loss
}

}  // namespace

ErrorVerdict judge_error(const std::vector<RankBoard>& boards, const FailureReport& dead) {
    BoardsByRank all;
    for (const RankBoard& board : boards) all[number(board.rank)] = &board;
    const auto found = all.find(number(dead.rank));
    const RankBoard* const own = found != all.end() && found->second->view.written ? found->second : nullptr;
    const Groups groups = groups_of(boards);
    if (!is_violent(dead.status)) {  // else it is no matter of an error; a program that catches none gets a SIGABRT
        ErrorVerdict mismatch = judge_mismatch(groups, all, number(dead.rank));
        if (!mismatch.text.empty()) return mismatch;
    }
    ErrorVerdict abort = judge_abort(groups, all, own, dead);
    if (!abort.text.empty() || is_violent(dead.status)) return abort;
    return judge_absence(groups, all, own, dead);
}

}  // namespace ddprun::coordinator
