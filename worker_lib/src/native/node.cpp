#include "worker_lib/src/native/node.hpp"

#include <sched.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "worker_lib/src/exchange.hpp"
#include "worker_lib/src/native/deadlines.hpp"
#include "worker_lib/src/native/p2p_lane.hpp"

namespace ddp::detail {

namespace {

/// As Control::core counts them.
std::uint32_t this_core() { return static_cast<std::uint32_t>(::sched_getcpu() + 1); }

WakerFence waker_fence(const std::vector<LocalRank>& ranks) {
    const bool all =
        std::ranges::all_of(ranks, [](const LocalRank& rank) { return rank.segment->control().allows_remote_fences; });
    return all ? WakerFence::kSleeper : WakerFence::kItself;
}

bool have_to_share(const std::vector<LocalRank>& ranks) {
    std::vector<CoreSet> cores;
    for (const LocalRank& rank : ranks) cores.push_back(rank.segment->control().cores);
    return share_cores(std::move(cores));
}

}  // namespace

Node::Node(std::string group, std::vector<LocalRank> ranks, int own_index, bool is_whole_group)
    : group_(std::move(group)),
      ranks_(std::move(ranks)),
      own_index_(own_index),
      is_whole_group_(is_whole_group),
      waiter_(own(), have_to_share(ranks_), waker_fence(ranks_)) {}

bool Node::any_foreign(Side side) const {
    for (int i = 0; i < size(); ++i) {
        if (is_foreign(i, side)) return true;
    }
    return false;
}

/// How long each rank of the node has not said that it waits for messages, as far as this wait has seen.
class Node::Silence {
public:
    void look(const Node& node) {
        const auto now = ddprun::Clock::now();
        counts_.resize(static_cast<std::size_t>(node.size()));
        since_.resize(counts_.size(), now);
        const auto missed = unwatched(std::exchange(looked_, now), now);
        for (std::size_t i = 0; i < counts_.size(); ++i) {
            since_[i] = std::min(since_[i] + missed, now);
            const auto count = node.control(static_cast<int>(i)).listening.load(std::memory_order_relaxed);
            if (std::exchange(counts_[i], count) != count) since_[i] = now;
        }
    }
    [[nodiscard]] bool of(int index) const {
        return ddprun::Clock::now() - since_[static_cast<std::size_t>(index)] >= kSilence;
    }

private:
    std::vector<std::uint64_t> counts_;
    std::vector<ddprun::TimePoint> since_;
    ddprun::TimePoint looked_;
};

void Node::begin(const Operation& operation) {
    deadline_ = operation.deadline;
    own().begun.store(operation.seq, std::memory_order_release);
}

/// Whether the rank at `index` is through with the meeting whose place our next one takes.
bool Node::has_room_for_us(int index) const {
    return control(index).through.load(std::memory_order_acquire) + kAhead > opened_;
}

/// The same of all ranks. What they are through with is looked at only when it matters: each look at a word that its
/// owner changes all the time takes about as long as a small operation.
bool Node::has_room() {
    if (opened_ < room_) return true;
    auto least = ~std::uint64_t{0};
    for (int i = 0; i < size(); ++i) least = std::min(least, control(i).through.load(std::memory_order_acquire));
    room_ = least + kAhead;
    return opened_ < room_;
}

void Node::open(const Operation& operation, const Places& places, std::span<const std::byte> data) {
    if (!has_room()) wait_for_all(operation, [this](int i) { return has_room_for_us(i); });
    announce(operation, places, data);
}

bool Node::try_open(const Operation& operation, const Places& places, std::span<const std::byte> data) {
    if (!has_room() || poisoned()) return false;
    announce(operation, places, data);
    return true;
}

void Node::announce(const Operation& operation, const Places& places, std::span<const std::byte> data) {
    ++opened_;
    Meeting& meeting = own().meetings[opened_ % kAhead];
    meeting.announcement = {places, tag_of(operation), operation.deadline};
    // A peer that waits takes the line of `number` away again and again: what lies there is written in one go, and not
    // fetched beforehand (which made 2 ranks slower).
    const std::size_t beside = std::min(data.size(), Meeting::kBesideNumber);
    if (data.size() > beside) std::memcpy(meeting.data.data() + beside, data.data() + beside, data.size() - beside);
    std::array<std::byte, Meeting::kBesideNumber> first{};
    if (beside > 0) std::memcpy(first.data(), data.data(), beside);
    const Identity identity = opened_identity_ = identity_of(operation);
    const std::uint64_t through = own().through.load(std::memory_order_relaxed);
    say_core();
    std::memcpy(meeting.data.data(), first.data(), first.size());
    meeting.identity = identity;
    meeting.through = through;
    meeting.number.store(opened_, std::memory_order_release);
    wake_all();
}

/// Until we are through with a meeting, no other takes its place.
bool Node::has_opened(int index, std::uint64_t number) const {
    return control(index).meetings[number % kAhead].number.load(std::memory_order_acquire) == number;
}

/// For peers that wait for us where ranks share cores.
void Node::say_core() const {
    if (!waiter_.crowded()) return;
    const std::uint32_t core = this_core();
    if (own().core.load(std::memory_order_relaxed) != core) own().core.store(core, std::memory_order_relaxed);
}

/// Whether one of those from `first` on that have not come was on our core when it was seen last.
template <typename HasCome>
bool Node::needs_our_core(int first, HasCome has_come) const {
    const std::uint32_t ours = this_core();
    for (int i = first; i < size(); ++i) {
        const std::uint32_t core = control(i).core.load(std::memory_order_relaxed);
        if ((core == ours || core == 0) && !has_come(i)) return true;
    }
    return false;
}

void Node::join(const Operation& operation) {
    ++joined_;
    wait_for_all(operation, [this](int i) { return has_opened(i, joined_); });
    compare(operation);
    take_earliest_deadline();
}

void Node::take_earliest_deadline() {
    for (int i = 0; i < size(); ++i) deadline_ = std::min(deadline_, announced(i).deadline);
}

template <typename HasCome>
bool Node::all_come_soon(HasCome has_come) const {
    int next = 0;  // all before it have come
    const auto all_have_come = [&] {
        while (next < size() && has_come(next)) ++next;
        return next == size();
    };
    return waiter_.glance(all_have_come, [&] { return needs_our_core(next, has_come); });
}

bool Node::try_join() {
    const std::uint64_t number = joined_ + 1;
    if (!all_come_soon([&](int i) { return has_opened(i, number); })) return false;
    std::uint64_t least = own().through.load(std::memory_order_relaxed);
    for (int i = 0; i < size(); ++i) {
        if (i == own_index_) continue;  // what we have written may be on its way still, and reading it would wait
        const Meeting& theirs = control(i).meetings[number % kAhead];
        if (theirs.identity != opened_identity_) return false;
        least = std::min(least, theirs.through);
    }
    joined_ = number;
    room_ = std::max(room_, least + kAhead);
    return true;
}

void Node::done(const Operation& operation) {
    own().done.store(operation.seq, std::memory_order_release);
    own().through.store(joined_, std::memory_order_release);
    wake_all();
}

void Node::arrive() {
    ++barriers_;
    say_core();
    own().arrived.store(barriers_, std::memory_order_release);
    wake_all();
}

bool Node::has_arrived(int index) const { return control(index).arrived.load(std::memory_order_acquire) >= barriers_; }

bool Node::try_barrier() const {
    return all_come_soon([this](int i) { return has_arrived(i); });
}

void Node::wait_at_barrier(const Operation& operation) const {
    wait_for_all(operation, [this](int i) { return has_arrived(i); });
}

/// `has_come` of a local index: what it looks at must be stored before the peer calls wake_all(). Once true, it stays
/// so, or it does not matter.
template <typename HasCome>
void Node::wait_for_all(const Operation& operation, HasCome has_come) const {
    int next = 0;  // all before it have come
    const auto all_have_come = [&] {
        while (next < size() && has_come(next)) ++next;
        return next == size();
    };
    Silence silence;
    waiter_.wait([&] { return all_have_come() || spoils(operation); }, [&] { return needs_our_core(next, has_come); },
                 [&] { check_progress(operation, silence, has_come); });
    // If all have come, the failure is about something later. Looked at once more: the last may have come and failed
    // between our looks at it and at the failure.
    if (!all_have_come()) check_poison(operation);
}

void Node::wait_until(const Operation& operation, const std::function<bool(int index)>& has_come) const {
    wait_for_all(operation, has_come);
}

template <typename HasCome>
void Node::check_progress(const Operation& operation, Silence& silence, HasCome has_come) const {
    say_waiting();
    silence.look(*this);
    std::vector<int> absent;
    std::vector<int> silent;  // of those
    for (int i = 0; i < size(); ++i) {
        const auto gone = absence(i);
        // Looked at after its end: whoever came and then ended is no reason to worry now.
        if (has_come(i)) continue;
        if (gone) {
            check_failure(operation);  // whoever leaves because of a failure has told of it before
            throw cannot_finish(group_, self(), describe(operation), gone->error);
        }
        absent.push_back(rank_at(i));
        if (silence.of(i)) silent.push_back(rank_at(i));
    }
    const auto now = ddprun::Clock::now();
    if (absent.empty() || now < deadline_) return;
    if (silent.empty() && now < finishing_deadline(deadline_)) return;
    const auto& culprits = silent.empty() ? absent : silent;
    throw Error(ErrorCode::Timeout,
                fmt::format("group '{}': {} waited until its deadline for {} in {}", group_, self(), names_of(culprits),
                            describe(operation)),
                culprits);
}

std::string Node::self() const { return name_rank(at(own_index_).rank, at(own_index_).global_rank, ""); }

std::string Node::names_of(const std::vector<int>& ranks) const {
    std::vector<std::string> names;
    for (const LocalRank& one : ranks_) {
        if (std::ranges::find(ranks, one.rank) != ranks.end()) names.push_back(one.name);
    }
    return list_of(std::move(names));
}

void Node::say_listening() const {
    own().listening.fetch_add(1, std::memory_order_relaxed);
    say_waiting();
}

void Node::say_waiting() const {
    at(own_index_).segment->post_page().listening.fetch_add(1, std::memory_order_relaxed);
}

void Node::compare(const Operation& operation) const {
    const Identity own_identity = identity_of(operation);
    int first = 0;
    while (first < size() && meeting(first).identity == own_identity) ++first;
    if (first == size()) return;
    const Error error = mismatch(group_, at(own_index_).name, operation, at(first).name,
                                 Signature{meeting(first).identity, announced(first).tag});
    throw Error(error.code(), error.what(), contradicted());
}

/// The ranks that have called something else than more than half of the group; nobody where ranks of other nodes might
/// see that otherwise.
std::vector<int> Node::contradicted() const {
    for (int i = 0; is_whole_group_ && i < size(); ++i) {
        std::vector<int> others;
        for (int j = 0; j < size(); ++j) {
            if (meeting(j).identity != meeting(i).identity) others.push_back(rank_at(j));
        }
        if (2 * others.size() < ranks_.size()) return others;
    }
    return {};
}

void Node::wake_all() const {
    waiter_.fence();
    for (int i = 0; i < size(); ++i) {
        if (i != own_index_) Waiter::wake(control(i));
    }
}

}  // namespace ddp::detail
