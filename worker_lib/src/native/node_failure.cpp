// What Node does when a rank of it fails, leaves or dies: who tells whom, and what each then says.

#include <fmt/format.h>

#include <utility>

#include "worker_lib/src/native/node.hpp"
#include "worker_lib/src/process_watch.hpp"

namespace ddp::detail {

void Node::poison(const Error& failure, std::uint64_t after) {
    give_up(failure, Wording::kOwnView, Hearers::kAll, after);
}

void Node::relay(const Error& failure, std::uint64_t after) {
    give_up(failure, Wording::kComplete, Hearers::kAll, after);
}

void Node::stop(const Error& failure) { give_up(failure, Wording::kOwnView, Hearers::kOwnRank, last_done()); }

/// When it returns, peers can see of our own rank that it has given up, also where another thread noted another failure
/// before and has not come to tell of it yet: now our program may get its buffers back.
void Node::give_up(const Error& failure, Wording wording, Hearers hearers, std::uint64_t after) {
    (void)note(failure, wording, hearers);  // if it is not the first, it may still spoil more
    accuse(own_index_, own_index_, after);
    if (hearers == Hearers::kAll) pass_on(after);
}

/// Of the own rank it always says so, and first, for the same reason: stop() may have noted on another thread that we
/// leave, and not have come to say which operations that spoils.
void Node::pass_on(std::uint64_t after) const {
    const std::uint32_t by = own().poisoned_by.load(std::memory_order_seq_cst);
    if (by == 0) return;
    const auto author = static_cast<int>(by) - 1;
    accuse(own_index_, author, after);
    for (int i = 0; !stopped_ && i < size(); ++i) accuse(i, author, after);
}

bool Node::note(const Error& failure, Wording wording, Hearers hearers) {
    const std::lock_guard lock(poison_mutex_);
    if (noted_) return false;
    noted_ = true;
    own().failure = make_note(failure, wording);
    stopped_ = hearers == Hearers::kOwnRank;
    return true;
}

bool Node::any_gives_up(const Operation& operation) const {
    std::atomic_thread_fence(std::memory_order_acquire);  // between what we have read and the look
    for (int i = 0; i < size(); ++i) {
        if (gives_up(i, operation)) return true;
    }
    return false;
}

/// Throws why a rank has given up, as soon as that is known. Until then we say that we wait, so that nobody takes us
/// for the culprit.
void Node::await_failure(const Operation& operation) const {
    wait_until(operation, [&](int i) {
        say_listening();
        return !gives_up(i, operation);
    });
}

/// Points a rank to the failure note of the one at `author`, unless it has been pointed to another, and then says what
/// that spoils: who sees the latter finds the former.
void Node::accuse(int index, int author, std::uint64_t after) const {
    std::uint32_t nobody = 0;
    const auto by = static_cast<std::uint32_t>(author) + 1;
    control(index).poisoned_by.compare_exchange_strong(nobody, by, std::memory_order_seq_cst);
    auto& least = control(index).spoiled_after;
    for (auto seen = least.load(std::memory_order_seq_cst);
         after < seen && !least.compare_exchange_weak(seen, after, std::memory_order_seq_cst);) {
    }
    std::atomic_thread_fence(std::memory_order_seq_cst);  // our program may write to its buffers after this only
    Waiter::wake(control(index));
}

/// The failure that the rank at `index` has noted; with its name, unless the text says already who found out.
Error Node::view_of(int index, bool named) const {
    const FailureNote& note = control(index).failure;
    Error failure = read_note(note);
    return note.complete != 0 || !named ? failure : reported_by(at(index).name, failure);
}

std::optional<Error> Node::failure() const {
    const std::uint32_t by = own().poisoned_by.load(std::memory_order_seq_cst);
    if (by == 0) return std::nullopt;
    const int index = static_cast<int>(by) - 1;
    return view_of(index, index != own_index_);
}

std::optional<Error> Node::failure_for_others() const {
    const std::uint32_t by = own().poisoned_by.load(std::memory_order_seq_cst);
    if (by == 0) return std::nullopt;
    return view_of(static_cast<int>(by) - 1, true);
}

std::optional<Error> Node::failure_of_others() const {
    const std::uint32_t by = own().poisoned_by.load(std::memory_order_seq_cst);
    if (by == 0) return std::nullopt;
    const int index = static_cast<int>(by) - 1;
    if (index == own_index_ && control(index).failure.complete == 0) return std::nullopt;
    return view_of(index, true);
}

void Node::check_failure(const Operation& operation) const {
    const auto found = failure();
    if (!found) return;
    const auto index = static_cast<int>(own().poisoned_by.load(std::memory_order_seq_cst)) - 1;
    if (index == own_index_ && control(index).failure.complete == 0) throw *found;  // that says what it was in
    throw cannot_finish(group_, self(), describe(operation), *found);
}

void Node::leave(Departure how) {
    own().left.store(how, std::memory_order_seq_cst);
    wake_all();
}

std::optional<Absence> Node::absence(int index) const {
    Departure how = control(index).left.load(std::memory_order_seq_cst);
    const bool ended = has_ended(at(index).process);
    if (how == Departure::kPresent && ended) how = Departure::kEnded;
    if (how == Departure::kPresent) return std::nullopt;
    const std::uint64_t after = control(index).done.load(std::memory_order_acquire);
    return Absence{after, departure_error(rank_at(index), at(index).name, how, after), ended ? Departure::kEnded : how};
}

int Node::stopped_pid(int index) const { return detail::stopped_pid(at(index).process); }

Absence Node::own_absence(Departure how) const {
    return {last_done(), departure_error(rank_at(own_index_), at(own_index_).name, how, last_done()), how};
}

bool Node::any_beyond(std::uint64_t seq) const {
    for (int i = 0; i < size(); ++i) {
        if (control(i).begun.load(std::memory_order_acquire) > seq) return true;
    }
    return false;
}

bool Node::any_busy() const {
    for (int i = 0; i < size(); ++i) {
        const std::uint64_t done = control(i).done.load(std::memory_order_acquire);
        if (control(i).begun.load(std::memory_order_acquire) > done) return true;
    }
    return false;
}

}  // namespace ddp::detail
