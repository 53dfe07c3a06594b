#pragma once
// Completion: the promise that a stream has come to one point of its queue. A handle, whose state is shared by the
// event that was recorded there, the stream that will complete it and all that wait for it. Any thread.

#include <cstdint>
#include <utility>

#include "tests/fake_gpu/unseen.hpp"

namespace ddp::fake {

class Completion {
public:
    /// Empty: like one that is completed.
    Completion() = default;
    static Completion pending();
    Completion(const Completion& other) : state_(other.state_) {
        if (state_ != nullptr) unseen_add(state_->users, 1);
    }
    Completion(Completion&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
    Completion& operator=(Completion other) noexcept {
        std::swap(state_, other.state_);
        return *this;
    }
    ~Completion() {
        if (state_ != nullptr) give_back(state_);
    }

    /// Called once, by the stream's thread.
    void complete() const;
    /// Returns whether it is completed. What happened before complete() happens before a true result, and nothing else
    /// is ordered, so that ThreadSanitizer knows exactly what an event stands for.
    [[nodiscard]] bool completed() const;
    /// Waits, with the same order.
    void wait() const;
    /// The same, but ThreadSanitizer sees no order.
    [[nodiscard]] bool completed_unseen() const { return state_ == nullptr || unseen_load(state_->completed) != 0; }
    void wait_unseen() const;

private:
    // States are used again, by an unseen list, and never given back to malloc, which would have to see their users.
    struct State {
        std::uint32_t completed;  // seen by ThreadSanitizer, through an atomic_ref; and a futex
        UnseenWord users;
        State* next;
    };
    friend class CompletionPool;
    static void give_back(State* state);

    State* state_ = nullptr;
};

}  // namespace ddp::fake
