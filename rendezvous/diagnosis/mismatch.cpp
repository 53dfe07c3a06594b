#include "rendezvous/diagnosis/mismatch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "common/text/number.hpp"
#include "common/text/words.hpp"
#include "rendezvous/diagnosis/death.hpp"
#include "rendezvous/diagnosis/hints.hpp"
#include "rendezvous/diagnosis/stall_text.hpp"

namespace ddprun::diagnosis {
namespace {

using std::chrono::nanoseconds;

/// The flight records of one host are read up to this long apart.
constexpr nanoseconds kSameMomentHere = std::chrono::milliseconds(5);

nanoseconds slack(const RankRecord& one, const RankRecord& other) {
    return one.host == other.host ? kSameMomentHere : kSameMoment;
}

/// The newest group of each name, by name and rank of the job.
using Groups = std::map<std::string, std::map<int, StallMember>>;

Groups groups_of(const std::vector<RankRecord>& records) {
    Groups groups;
    for (const RankRecord& record : records) {
        for (std::size_t i = 0; i < record.view.groups.size(); ++i) {
            const RecordedGroup& group = record.view.groups[i];
            groups[group.name][number(record.rank)] = {&record, &group, static_cast<int>(i)};
        }
    }
    return groups;
}

/// Returns whether `rank` is a member. For a rank without a flight record the member lists of its peers decide.
bool is_member(const std::map<int, StallMember>& members, int rank) {
    return members.contains(rank) ||
           std::ranges::any_of(members, [&](const auto& entry) { return has_member(*entry.second.group, rank); });
}

/// Returns "MISMATCH of a send and its receive in group 'world': rank 0 (node a) send #1 f32[4] peer 1 tag 5, rank 1
/// (node b) recv #1 f32[5] peer 0 tag 5", if `member` is such a receiver: its flight record has both sides.
ErrorVerdict diagnose_transfer(const std::string& group, int rank, const StallMember& member, const RecordsByRank& all,
                               nanoseconds& oldest) {
    const auto& operations = member.record->view.operations;
    for (const RecordedOperation& message : operations) {
        const bool mismatched =
            message.group == member.index && is_arrival(message) && message.mismatch && message.ended_ago;
        if (!mismatched || *message.ended_ago > kRecentTimeout || *message.ended_ago <= oldest) continue;
        const auto receive = std::ranges::find_if(operations, [&](const RecordedOperation& one) {
            return one.group == member.index && one.op == "recv" && one.mismatch && one.peer == message.peer &&
                   one.transfer_tag == message.transfer_tag;
        });
        if (receive == operations.end()) continue;
        oldest = *message.ended_ago;
        RecordedOperation sent = message;
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

/// Returns the first mismatch in a group that `dead` is a member of. Operations that a group refused because it had
/// failed have the same error, but all ranks called them alike.
ErrorVerdict diagnose_mismatch(const Groups& groups, const RecordsByRank& all, int dead) {
    ErrorVerdict verdict;
    nanoseconds oldest{-1};
    for (const auto& [name, members] : groups) {
        if (!is_member(members, dead)) continue;
        const GroupWaits group(name, members);
        for (const auto& [rank, member] : members) {
            if (ErrorVerdict transfer = diagnose_transfer(name, rank, member, all, oldest); !transfer.text.empty())
                verdict = std::move(transfer);
            for (const RecordedOperation& operation : member.record->view.operations) {
                const bool failed_of_it = operation.group == member.index && operation.p2p_seq == 0 &&
                                          operation.mismatch && operation.ended_ago;
                if (!failed_of_it || *operation.ended_ago > kRecentTimeout || *operation.ended_ago <= oldest) continue;
                const StallWait wait{rank, member, &operation};
                if (!is_mismatch(group, wait)) continue;
                oldest = *operation.ended_ago;
                const StallFinding finding{StallKind::kMismatch, &group, &wait};
                verdict = {describe(finding, all, Tense::kPast), hint_for(finding, all, Tense::kPast),
                           culprits(finding)};
            }
        }
    }
    return verdict;
}

struct Abort {
    int rank = 0;
    StallMember member;
};

/// Returns whether no operation had failed on that rank before it aborted the group: else the abort is a consequence.
bool is_first_error(const StallMember& member) {
    const nanoseconds at = *member.group->aborted_ago;
    return at <= kRecentTimeout &&
           std::ranges::none_of(member.record->view.operations, [&](const RecordedOperation& o) {
               return o.failed && o.ended_ago && *o.ended_ago > at;
           });
}

/// Returns whether `dead`, whose flight record is `own`, may have ended because of the abort. The rank that aborted the
/// group may have continued, and have been killed for another reason later. On any other rank an operation has failed
/// because of the abort, and none has succeeded since.
bool explains(const Abort& abort, const std::map<int, StallMember>& members, const RankRecord* own,
              const FailureReport& dead) {
    if (own == nullptr) return false;
    const nanoseconds at = *abort.member.group->aborted_ago;
    if (abort.rank == number(dead.rank))
        return !is_violent(dead.status) || (own->ended_ago && *own->ended_ago + kSameMoment >= at);
    if (is_violent(dead.status) || !own->ended_ago || !is_member(members, number(dead.rank))) return false;
    const nanoseconds latest = at + slack(*own, *abort.member.record);
    const RecordedOperation* const last = ended_last(own->view);
    return *own->ended_ago <= latest && last != nullptr && last->failed && *last->ended_ago <= latest;
}

std::string were_in(const std::vector<int>& ranks, const RecordedOperation& operation, const RecordsByRank& all) {
    return fmt::format("; {} {} in {}", name_ranks(ranks, all), inflect(ranks.size(), "was", "were"),
                       describe(operation));
}

/// Returns "; ranks 0-2 (node a) were in #5 all_reduce sum f32[4]": the oldest collective that the abort ended.
std::string participants_text(const std::map<int, StallMember>& members, const Abort& abort, const RecordsByRank& all) {
    const nanoseconds at = *abort.member.group->aborted_ago;
    std::map<std::uint64_t, std::pair<const RecordedOperation*, std::vector<int>>> by_seq;
    for (const auto& [rank, member] : members) {
        const nanoseconds apart = slack(*member.record, *abort.member.record);
        for (const RecordedOperation& operation : member.record->view.operations) {
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

ErrorVerdict diagnose_abort(const Groups& groups, const RecordsByRank& all, const RankRecord* own,
                            const FailureReport& dead) {
    std::optional<Abort> first;
    const std::map<int, StallMember>* members = nullptr;
    for (const auto& [name, of_group] : groups) {
        for (const auto& [rank, member] : of_group) {
            if (!member.group->aborted_ago || !is_first_error(member)) continue;
            const Abort abort{rank, member};
            if (!explains(abort, of_group, own, dead)) continue;
            if (first && *member.group->aborted_ago <= *first->member.group->aborted_ago) continue;
            first = abort;
            members = &of_group;
        }
    }
    if (!first) return {};
    const RecordedGroup& group = *first->member.group;
    std::string text = fmt::format("ABORTED group '{}': {} aborted it: '{}'", group.name,
                                   name_ranks({first->rank}, all), group.abort_reason);
    text += participants_text(*members, *first, all);
    const std::string& phase = first->member.record->view.phase;
    if (!phase.empty()) text += fmt::format("; rank {} in phase '{}'", first->rank, phase);
    return {std::move(text), abort_hint(first->rank), {first->rank}};
}

/// Returns "exited with code 0". Returns an empty text if the process has not ended.
std::string how_ended(const RankRecord& record) {
    if (!record.ended) return "";
    return record.status ? to_string(*record.status) : describe_process(record);
}

/// Returns whether the operation was in flight when the member left its group, and has failed because of that.
bool was_let_go(const StallMember& member, const RecordedOperation& operation) {
    const auto& left = member.group->left_ago;
    return operation.group == member.index && operation.failed && !is_arrival(operation) && left &&
           operation.ended_ago && *operation.ended_ago <= *left;
}

/// Returns how long ago a member left the group without an error: it let go of the group, or its process ended with
/// code 0. Returns nothing if it has not left, if an operation had failed before, or if it left by an exception.
std::optional<nanoseconds> left_in_order_ago(const StallMember& member) {
    const RecordedGroup& group = *member.group;
    const bool failed = std::ranges::any_of(member.record->view.operations, [&](const RecordedOperation& operation) {
        return operation.group == member.index && operation.failed && !is_arrival(operation) &&
               !was_let_go(member, operation);
    });
    if (failed || group.aborted_ago || group.left_by_exception) return std::nullopt;
    const RankRecord& record = *member.record;
    auto left = group.left_ago;
    if (!left && record.status && record.status->success()) left = record.ended_ago;
    if (left && record.process_before_ago && *record.process_before_ago >= *left)
        return std::nullopt;  // its agent had signaled it to end
    return left;
}

/// Returns the oldest operation of a rank that failed because the leaver was missing, or null.
const RecordedOperation* failed_without(const StallMember& member, int leaver, const RecordedGroup& left) {
    const auto needs_it = [&](const RecordedOperation& operation) {
        if (operation.group != member.index || !operation.failed || operation.timed_out || is_arrival(operation))
            return false;
        if (was_let_go(member, operation)) return false;  // it has left, too
        if (operation.p2p_seq == 0) return left.done < operation.seq;
        return operation.peer >= 0 && world_rank(*member.group, operation.peer) == leaver;
    };
    const auto& operations = member.record->view.operations;
    const auto found = std::ranges::find_if(operations, needs_it);
    return found != operations.end() ? &*found : nullptr;
}

/// Returns the first operation from number `needed` on that the leaver had called and not waited for, or null. Its
/// peers lacked nothing in the operations before `needed`.
const RecordedOperation* left_in_flight(const StallMember& leaver, std::uint64_t needed) {
    const auto& operations = leaver.record->view.operations;
    const auto found = std::ranges::find_if(operations, [&](const RecordedOperation& one) {
        return one.p2p_seq == 0 && one.seq > leaver.group->done && one.seq >= needed && was_let_go(leaver, one);
    });
    return found != operations.end() ? &*found : nullptr;
}

std::string describe_leaving(const StallMember& leaver, const RecordedOperation* in_flight) {
    const RecordedGroup& group = *leaver.group;
    const std::string end = how_ended(*leaver.record);
    std::string text = fmt::format("LEFT rank {} ({}{}{}): let go of group '{}' ", number(leaver.record->rank),
                                   name_node(leaver.record->host), end.empty() ? "" : ", ", end, group.name);
    if (group.done == 0) {
        text += "before any collective was done";
    } else {
        const RecordedOperation* const last = find_collective(leaver, group.done);
        text += "after " + (last != nullptr ? describe(*last) : fmt::format("#{}", group.done));
    }
    return in_flight == nullptr ? text : text + fmt::format(", with {} in flight", describe(*in_flight));
}

/// Returns "LEFT …; ranks 0, 2 (node a) were in #6 …". Returns an empty verdict if no rank needed the leaver.
ErrorVerdict diagnose_leaver(const StallMember& leaver, const std::map<int, StallMember>& members,
                             const RecordsByRank& all) {
    std::vector<int> ranks;
    const RecordedOperation* what = nullptr;
    for (const auto& [rank, member] : members) {
        const RecordedOperation* failed = failed_without(member, number(leaver.record->rank), *leaver.group);
        if (failed == nullptr || (what != nullptr && describe(*failed) != describe(*what))) continue;
        what = failed;
        ranks.push_back(rank);
    }
    if (what == nullptr) return {};
    const RecordedOperation* const in_flight = left_in_flight(leaver, what->p2p_seq == 0 ? what->seq : 0);
    return {describe_leaving(leaver, in_flight) + were_in(ranks, *what, all),
            in_flight != nullptr ? kInFlightHint : kStepsHint,
            {number(leaver.record->rank)}};
}

/// Returns the verdict on a member that left the group of `dead` without an error before that group failed. `dead` may
/// have failed in an operation that the leaver has completed, because another rank that needed the leaver failed first.
/// If several members left, the first one that a rank needed counts.
ErrorVerdict diagnose_absence(const Groups& groups, const RecordsByRank& all, const RankRecord* own,
                              const FailureReport& dead) {
    const RecordedOperation* const last = own != nullptr ? ended_last(own->view) : nullptr;
    if (last == nullptr || !last->failed || last->timed_out || last->group < 0) return {};
    const auto index = static_cast<std::size_t>(last->group);
    if (index >= own->view.groups.size()) return {};
    const auto& members = groups.at(own->view.groups[index].name);
    if (members.at(number(dead.rank)).index != last->group) return {};  // of an older group of that name
    std::vector<std::pair<nanoseconds, const StallMember*>> leavers;
    for (const auto& [rank, member] : members) {
        const auto left = left_in_order_ago(member);
        if (rank == number(dead.rank) || !left || *left > kRecentTimeout) continue;
        if (*left + slack(*member.record, *own) >= *last->ended_ago) leavers.emplace_back(*left, &member);
    }
    std::ranges::stable_sort(leavers, std::greater(), &std::pair<nanoseconds, const StallMember*>::first);
    for (const auto& [left, leaver] : leavers) {
        if (ErrorVerdict verdict = diagnose_leaver(*leaver, members, all); !verdict.text.empty()) return verdict;
    }
    return {};  // no rank needed the leavers
}

}  // namespace

ErrorVerdict diagnose_error(const std::vector<RankRecord>& records, const FailureReport& dead) {
    RecordsByRank all;
    for (const RankRecord& record : records) all[number(record.rank)] = &record;
    const auto found = all.find(number(dead.rank));
    const RankRecord* const own = found != all.end() && found->second->view.written ? found->second : nullptr;
    const Groups groups = groups_of(records);
    if (!is_violent(dead.status)) {  // a violent end comes from no mismatch, although an uncaught error ends in SIGABRT
        ErrorVerdict mismatch = diagnose_mismatch(groups, all, number(dead.rank));
        if (!mismatch.text.empty()) return mismatch;
    }
    ErrorVerdict abort = diagnose_abort(groups, all, own, dead);
    if (!abort.text.empty() || is_violent(dead.status)) return abort;
    return diagnose_absence(groups, all, own, dead);
}

}  // namespace ddprun::diagnosis
