#include "rendezvous/diagnosis/wait_graph.hpp"

#include <algorithm>

namespace ddprun::diagnosis {
namespace {

using std::chrono::nanoseconds;

constexpr int kMaxListed = 1 << 14;  // a worker may have written any number of members

bool sends(const RecordedOperation& operation) { return operation.op == "send"; }

}  // namespace

int world_rank(const RecordedGroup& group, int index) {
    for (const RankRun& run : group.members) {
        if (index < run.count) return run.first + index * run.stride;
        index -= run.count;
    }
    return -1;
}

bool has_member(const RecordedGroup& group, int rank) {
    return std::ranges::any_of(group.members, [rank](const RankRun& run) {
        if (run.stride == 0) return rank == run.first;
        const int steps = (rank - run.first) / run.stride;
        return steps >= 0 && steps < run.count && run.first + steps * run.stride == rank;
    });
}

const RecordedOperation* find_collective(const StallMember& member, std::uint64_t seq) {
    for (const RecordedOperation& operation : member.record->view.operations) {
        if (operation.group == member.index && operation.p2p_seq == 0 && operation.seq == seq) return &operation;
    }
    return nullptr;
}

void GroupWaits::find_waits(nanoseconds min_wait) {
    for (const auto& [rank, member] : members_) {
        if (!member.record->ended) add_member(rank, member, min_wait);  // an ended worker waits for no other one
    }
    for (const auto& [rank, peer, is_sender, tag] : sides_) {
        if (is_sender && sides_.contains({peer, rank, false, tag})) matched_.insert(std::minmax({rank, peer}));
    }
    for (StallWait& transfer : long_waits_) find_other_side(transfer);
    add_collective_wait();
}

void GroupWaits::add_member(int rank, const StallMember& member, nanoseconds min_wait) {
    std::size_t transfers = 0;
    const bool going_on = is_going_on(member.record->view, min_wait);
    for (const RecordedOperation& operation : member.record->view.operations) {
        if (operation.group != member.index || operation.ended_ago || is_arrival(operation)) continue;
        const auto waited = waits_for(operation, going_on);
        if (waited) waiting_.insert(rank);
        const bool stuck = waited && *waited >= min_wait;
        StallWait wait{rank, member, &operation, waited.value_or(nanoseconds(0))};
        if (operation.p2p_seq != 0) {
            wait.peer = operation.peer >= 0 ? world_rank(*member.group, operation.peer) : -1;
            if (wait.peer >= 0) {
                sides_.emplace(rank, wait.peer, sends(operation), operation.transfer_tag);
                if (stuck) transfers_.emplace(std::pair(rank, wait.peer), &operation);
            }
            if (stuck && ++transfers <= kMaxTransfers) long_waits_.push_back(std::move(wait));
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
        wait.unknown_ranks = true;
        return;
    }
    if (sides_.contains({wait.peer, wait.rank, !sends(*wait.operation), wait.operation->transfer_tag})) return;
    wait.for_ranks.insert(wait.peer);
    const auto member = members_.find(wait.peer);
    wait.unknown_ranks = member != members_.end() && member->second.record->view.more_unfinished > 0;
    // Set only if no transfer of the pair matches: a rank with a receive that is served later is not a culprit.
    const auto other = transfers_.find({wait.peer, wait.rank});
    if (other != transfers_.end() && !matched_.contains(std::minmax({wait.rank, wait.peer})))
        wait.crossing = other->second;
    if (!sends(*wait.operation)) wait.unmatched = unmatched_like(wait);
}

/// Returns an arrived message with the type and count of the receive. Any other message may be meant for a later
/// receive.
const RecordedOperation* GroupWaits::unmatched_like(const StallWait& wait) const {
    const RecordedOperation& receive = *wait.operation;
    const auto& operations = wait.member.record->view.operations;
    const auto found = std::ranges::find_if(operations, [&](const RecordedOperation& one) {
        return is_arrival(one) && !one.ended_ago && one.group == wait.member.index && one.peer == receive.peer &&
               one.dtype == receive.dtype && one.count == receive.count;
    });
    return found == operations.end() ? nullptr : &*found;
}

void GroupWaits::add_collective_wait() {
    if (in_collective_.empty()) return;
    StallWait wait = *std::ranges::max_element(in_collective_, {}, &StallWait::waited);
    const auto absent = [&](int rank) {
        const auto there = members_.find(rank);
        if (there == members_.end()) return true;
        const RecordedGroup& group = *there->second.group;
        return (there->second.record->ended ? group.done : group.queued) < wait.operation->seq;
    };
    int listed = 0;
    for (const RankRun& run : wait.member.group->members) {
        for (int i = 0; i < run.count && listed < kMaxListed; ++i, ++listed) {
            if (const int rank = run.first + i * run.stride; absent(rank)) wait.for_ranks.insert(rank);
        }
    }
    for (const auto& [rank, member] : members_) {  // members that the list has no room for
        if (absent(rank)) wait.for_ranks.insert(rank);
    }
    wait.unknown_ranks =
        wait.member.group->members.empty() && members_.size() < static_cast<std::size_t>(wait.member.group->size);
    long_waits_.push_back(std::move(wait));
}

std::vector<int> GroupWaits::participants(const StallWait& wait) const {
    if (wait.operation->p2p_seq != 0) return {wait.rank, wait.peer};
    std::vector<int> ranks;
    for (const StallWait& one : in_collective_) ranks.push_back(one.rank);
    return ranks;
}

std::vector<int> GroupWaits::stopped(const StallWait& wait) const {
    std::vector<int> ranks;
    const auto add = [&](int rank) {
        const auto member = members_.find(rank);
        if (member != members_.end() && member->second.record->process == ProcessState::kStopped) ranks.push_back(rank);
    };
    if (wait.operation->p2p_seq != 0) {
        for (const int rank : participants(wait)) add(rank);
    } else {
        for (const auto& [rank, member] : members_) add(rank);
    }
    return ranks;
}

}  // namespace ddprun::diagnosis
