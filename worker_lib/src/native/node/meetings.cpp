#include "worker_lib/src/native/node/meetings.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace ddp::detail {

bool Meetings::any_foreign(Side side) const {
    for (int i = 0; i < ranks_.size(); ++i) {
        if (is_foreign(i, side)) return true;
    }
    return false;
}

/// Returns whether the rank at `index` has closed the meeting whose slot the next one takes.
bool Meetings::has_room(int index) const {
    return ranks_.control(index).through.load(std::memory_order_acquire) + kAhead > opened_;
}

/// Returns the same for all ranks. Looks at their `through` only when it matters, because each look at a word that its
/// owner changes all the time is a cache miss.
bool Meetings::all_have_room() {
    if (opened_ < room_) return true;
    auto least = ~std::uint64_t{0};
    for (int i = 0; i < ranks_.size(); ++i) {
        least = std::min(least, ranks_.control(i).through.load(std::memory_order_acquire));
    }
    room_ = least + kAhead;
    return opened_ < room_;
}

void Meetings::open(const Operation& operation, const BufferOffsets& offsets, std::span<const std::byte> data) {
    if (!all_have_room()) wait_.until_all(operation, [this](int i) { return has_room(i); });
    announce(operation, offsets, data);
}

bool Meetings::try_open(const Operation& operation, const BufferOffsets& offsets, std::span<const std::byte> data) {
    if (!all_have_room() || failure_.poisoned()) return false;
    announce(operation, offsets, data);
    return true;
}

void Meetings::announce(const Operation& operation, const BufferOffsets& offsets, std::span<const std::byte> data) {
    ++opened_;
    Control& own = ranks_.own();
    Meeting& meeting = own.meetings[opened_ % kAhead];
    meeting.announcement = {offsets, label_of(operation), operation.deadline};
    // A peer that waits takes the cache line of `number` away again and again, so all its fields are written in one go,
    // and not prefetched.
    const std::size_t beside = std::min(data.size(), Meeting::kBesideNumber);
    if (data.size() > beside) std::memcpy(meeting.data.data() + beside, data.data() + beside, data.size() - beside);
    std::array<std::byte, Meeting::kBesideNumber> first{};
    if (beside > 0) std::memcpy(first.data(), data.data(), beside);
    const Identity identity = opened_identity_ = identity_of(operation);
    const std::uint64_t through = own.through.load(std::memory_order_relaxed);
    ranks_.publish_core();
    std::memcpy(meeting.data.data(), first.data(), first.size());
    meeting.identity = identity;
    meeting.through = through;
    meeting.number.store(opened_, std::memory_order_release);
    ranks_.wake_all();
}

/// Returns whether that rank has opened the meeting. No later one takes its slot before the own rank has closed it.
bool Meetings::has_opened(int index, std::uint64_t number) const {
    return ranks_.control(index).meetings[number % kAhead].number.load(std::memory_order_acquire) == number;
}

void Meetings::join(const Operation& operation) {
    ++joined_;
    wait_.until_all(operation, [this](int i) { return has_opened(i, joined_); });
    compare(operation);
    take_earliest_deadline();
}

void Meetings::take_earliest_deadline() {
    for (int i = 0; i < ranks_.size(); ++i) progress_.lower_deadline(announced(i).deadline);
}

bool Meetings::try_join() {
    const std::uint64_t number = joined_ + 1;
    if (!wait_.all_soon([&](int i) { return has_opened(i, number); })) return false;
    std::uint64_t least = ranks_.own().through.load(std::memory_order_relaxed);
    for (int i = 0; i < ranks_.size(); ++i) {
        if (i == ranks_.own_index()) continue;  // the own line may still be on its way back: a read would wait
        const Meeting& theirs = ranks_.control(i).meetings[number % kAhead];
        if (theirs.identity != opened_identity_) return false;
        least = std::min(least, theirs.through);
    }
    joined_ = number;
    room_ = std::max(room_, least + kAhead);
    return true;
}

void Meetings::compare(const Operation& operation) const {
    const Identity own_identity = identity_of(operation);
    int first = 0;
    while (first < ranks_.size() && meeting(first).identity == own_identity) ++first;
    if (first == ranks_.size()) return;
    Failure failure = mismatch(ranks_.own_local().name, operation, ranks_.local(first).name,
                               Signature{meeting(first).identity, announced(first).label});
    failure.culprits = minority();
    throw FailureError(std::move(failure), ranks_.group(), ranks_.self());
}

/// Returns the ranks whose call differs from that of more than half of the group; none if ranks of other nodes might
/// change that majority.
std::vector<int> Meetings::minority() const {
    if (ranks_.size() < ranks_.group_size()) return {};
    for (int i = 0; i < ranks_.size(); ++i) {
        std::vector<int> others;
        for (int j = 0; j < ranks_.size(); ++j) {
            if (meeting(j).identity != meeting(i).identity) others.push_back(ranks_.rank_at(j));
        }
        if (2 * others.size() < static_cast<std::size_t>(ranks_.size())) return others;
    }
    return {};
}

}  // namespace ddp::detail
