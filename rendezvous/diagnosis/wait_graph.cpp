#include "rendezvous/coordinator/stall_waits.hpp"

#include <algorithm>

namespace ddprun::coordinator {
namespace {

using std::chrono::nanoseconds;

constexpr int kMaxListed = 1 << 14;  // of what a worker has written: it may be anything

bool sends(const BoardOperation& operation) { return operation.op == "send"; }

}  // namespace

int world_rank(const BoardGroup& group, int index) {
    for (const RankRun& run : group.members) {
        if (index < run.count) return run.first + index * run.stride;
        index -= run.count;
    }
    return -1;
}

bool has_member(const BoardGroup& group, int rank) {
    return std::ranges::any_of(group.members, [rank](const RankRun& run) {
        if (run.stride == 0) return rank == run.first;
        const int steps = (rank - run.first) / run.stride;
        return steps >= 0 && steps < run.count && run.first + steps * run.stride == rank;
    });
}

const BoardOperation* find_collective(const StallMember& member, std::uint64_t seq) {
    for (const BoardOperation& operation : member.board->view.operations) {
        if (operation.group == member.index && operation.p2p_seq == 0 && operation.seq == seq) return &operation;
    }
    return nullptr;
}

void GroupWaits::look(nanoseconds patience) {
    for (const auto& [rank, member] : members_) {
        if (!member.board->ended) look_at(rank, member, patience);  // the dead are only waited for
    }
    for (const auto& [rank, peer, is_sender, tag] : sides_) {
        if (is_sender && sides_.contains({peer, rank, false, tag})) matched_.insert(std::minmax({rank, peer}));
    }
    for (StallWait& transfer : speakers_) find_other_side(transfer);
    speak_for_collective();
}

void GroupWaits::look_at(int rank, const StallMember& member, nanoseconds patience) {
    std::size_t transfers = 0;
    const bool going_on = is_going_on(member.board->view, patience);
    for (const BoardOperation& operation : member.board->view.operations) {
        if (operation.group != member.index || operation.ended_ago || is_arrival(operation)) continue;
        const auto waited = waits_for(operation, going_on);
        if (waited) waiting_.insert(rank);
        const bool stuck = waited && *waited >= patience;
        StallWait wait{rank, member, &operation, waited.value_or(nanoseconds(0))};
        if (operation.p2p_seq != 0) {
            wait.peer = operation.peer >= 0 ? world_rank(*member.group, operation.peer) : -1;
            if (wait.peer >= 0) {
                sides_.emplace(rank, wait.peer, sends(operation), operation.transfer_tag);
                if (stuck) transfers_.emplace(std::pair(rank, wait.peer), &operation);
            }
            if (stuck && ++transfers <= kMaxTransfers) speakers_.push_back(std::move(wait));
            continue;
        }
        if (!stuck) continue;
        if (!in_collective_.empty() && operation.seq > in_collective_.front().operation->seq) continue;  // comes later
        if (!in_collective_.empty() && operation.seq < in_collective_.front().operation->seq) in_collective_.clear();
        in_collective_.push_back(std::move(wait));
    }
}

void GroupWaits::find_other_side(StallWait& wait) const {
    if (wait.peer < 0) {
        wait.somebody_unknown = true;
        return;
    }
    if (sides_.contains({wait.peer, wait.rank, !sends(*wait.operation), wait.operation->transfer_tag})) return;
    wait.for_ranks.insert(wait.peer);
    const auto member = members_.find(wait.peer);
    wait.somebody_unknown = member != members_.end() && member->second.board->view.more_in_hand > 0;
    // Who has posted a receive that is served later is no culprit: only of a pair none of whose transfers meet.
    const auto other = transfers_.find({wait.peer, wait.rank});
    if (other != transfers_.end() && !matched_.contains(std::minmax({wait.rank, wait.peer})))
        wait.crossing = other->second;
    if (!sends(*wait.operation)) wait.unasked = unasked_like(wait);
}

/// Of the type and number of elements that the receive wants: another one may well be meant for later.
const BoardOperation* GroupWaits::unasked_like(const StallWait& wait) const {
    const BoardOperation& receive = *wait.operation;
    const auto& operations = wait.who.board->view.operations;
    const auto found = std::ranges::find_if(operations, [&](const BoardOperation& one) {
        return is_arrival(one) && !one.ended_ago && one.group == wait.who.index && one.peer == receive.peer &&
               one.dtype == receive.dtype && one.count == receive.count;
    });
    return found == operations.end() ? nullptr : &*found;
}

void GroupWaits::speak_for_collective() {
    if (in_collective_.empty()) return;
    StallWait speaker = *std::ranges::max_element(in_collective_, {}, &StallWait::waited);
    const auto absent = [&](int rank) {
        const auto there = members_.find(rank);
        if (there == members_.end()) return true;
        const BoardGroup& group = *there->second.group;
        return (there->second.board->ended ? group.done : group.queued) < speaker.operation->seq;
    };
    int listed = 0;
    for (const RankRun& run : speaker.who.group->members) {
        for (int i = 0; i < run.count && listed < kMaxListed; ++i, ++listed) {
            if (const int rank = run.first + i * run.stride; absent(rank)) speaker.for_ranks.insert(rank);
        }
    }
    for (const auto& [rank, member] : members_) {  // those of a group whose list did not fit
        if (absent(rank)) speaker.for_ranks.insert(rank);
    }
    speaker.somebody_unknown =
        speaker.who.group->members.empty() && members_.size() < static_cast<std::size_t>(speaker.who.group->size);
    speakers_.push_back(std::move(speaker));
}

std::vector<int> GroupWaits::beside(const StallWait& speaker) const {
    if (speaker.operation->p2p_seq != 0) return {speaker.rank, speaker.peer};
    std::vector<int> ranks;
    for (const StallWait& wait : in_collective_) ranks.push_back(wait.rank);
    return ranks;
}

std::vector<int> GroupWaits::stopped(const StallWait& speaker) const {
    std::vector<int> ranks;
    const auto add = [&](int rank) {
        const auto member = members_.find(rank);
        if (member != members_.end() && member->second.board->process == "stopped") ranks.push_back(rank);
    };
    if (speaker.operation->p2p_seq != 0) {
        for (const int rank : beside(speaker)) add(rank);
    } else {
        for (const auto& [rank, member] : members_) add(rank);
    }
    return ranks;
}

}  // namespace ddprun::coordinator
