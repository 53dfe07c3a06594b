#include "worker_lib/src/native/node/node_failure.hpp"

#include <utility>

namespace ddp::detail {

void NodeFailure::poison(const Failure& failure, std::uint64_t after) { give_up(failure, Recipients::kAll, after); }

void NodeFailure::stop(const Failure& failure) {
    give_up(failure, Recipients::kOwnRank, ranks_.own().done.load(std::memory_order_acquire));
}

/// Ends the own rank's part. When it returns, peers can see that, even if another thread noted another failure first
/// and has not yet published it, because from then on the program may get its buffers back.
void NodeFailure::give_up(const Failure& failure, Recipients recipients, std::uint64_t after) {
    note(failure, recipients);  // a later failure is not noted, but may end more operations
    mark(ranks_.own_index(), ranks_.own_index(), after);
    if (recipients == Recipients::kAll) propagate(after);
}

/// Marks the own rank first, and even after stop(), for the reason that give_up() names: stop() may have noted on
/// another thread that this rank leaves, and not yet have published which operations that ends.
void NodeFailure::propagate(std::uint64_t after) const {
    const auto first = author();
    if (!first) return;
    mark(ranks_.own_index(), *first, after);
    for (int i = 0; !stopped_ && i < ranks_.size(); ++i) mark(i, *first, after);
}

/// Writes the note of the own rank, unless there is one.
void NodeFailure::note(const Failure& failure, Recipients recipients) {
    const ddprun::Lock lock(mutex_);
    if (noted_) return;
    noted_ = true;
    ranks_.own().failure = make_note(failure);
    stopped_ = recipients == Recipients::kOwnRank;
}

/// Points the page of the rank at `index` to the note of the rank at `author`, unless it points to another, and then
/// publishes there which operations that ends: a reader that sees the latter finds the former.
void NodeFailure::mark(int index, int author, std::uint64_t after) const {
    Control& control = ranks_.control(index);
    std::uint32_t none = 0;
    const auto by = static_cast<std::uint32_t>(author) + 1;
    control.poisoned_by.compare_exchange_strong(none, by, std::memory_order_seq_cst);
    auto& least = control.valid_through;
    for (auto seen = least.load(std::memory_order_seq_cst);
         after < seen && !least.compare_exchange_weak(seen, after, std::memory_order_seq_cst);) {
    }
    std::atomic_thread_fence(std::memory_order_seq_cst);  // the program may write to its buffers only after this
    Waiter::wake(control);
}

bool NodeFailure::any_gives_up(const Operation& operation) const {
    std::atomic_thread_fence(std::memory_order_acquire);  // between reading the buffers and looking here
    for (int i = 0; i < ranks_.size(); ++i) {
        if (gives_up(i, operation)) return true;
    }
    return false;
}

/// Returns the local index of the rank whose note counts.
std::optional<int> NodeFailure::author() const {
    const std::uint32_t by = ranks_.own().poisoned_by.load(std::memory_order_seq_cst);
    return by == 0 ? std::nullopt : std::optional(static_cast<int>(by) - 1);
}

/// Returns the failure that the rank at `index` has noted.
Failure NodeFailure::noted_by(int index) const {
    Failure failure = read_note(ranks_.control(index).failure, ranks_.group_size());
    return index == ranks_.own_index() ? failure : reported_by(ranks_.local(index).name, std::move(failure));
}

std::optional<Failure> NodeFailure::for_this_rank() const {
    const auto first = author();
    return first ? std::optional(noted_by(*first)) : std::nullopt;
}

std::optional<Failure> NodeFailure::for_other_nodes() const {
    auto failure = for_this_rank();
    if (failure) failure = reported_by(ranks_.own_local().name, std::move(*failure));
    return failure;
}

std::optional<Failure> NodeFailure::found_by_others() const {
    auto failure = for_this_rank();
    return failure && failure->kind != FailureKind::kOwn ? failure : std::nullopt;
}

void NodeFailure::check_any(const Operation& operation) const {
    auto found = for_this_rank();
    if (!found) return;
    // A failure that this rank found itself has its operation already.
    if (found->kind != FailureKind::kOwn) found = met_in(describe(operation), std::move(*found));
    throw FailureError(std::move(*found), ranks_.group(), ranks_.self());
}

}  // namespace ddp::detail
