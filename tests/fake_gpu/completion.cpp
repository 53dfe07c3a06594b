#include "tests/fake_gpu/completion.hpp"

#include <sys/mman.h>

#include <atomic>
#include <mutex>
#include <new>

namespace ddp::fake {

/// The states that are not in use.
class CompletionPool {
public:
    using State = Completion::State;

    DDP_UNSEEN static State* take() {
        lock_.lock();
        if (free_ == nullptr) add_states();
        State* const state = free_;
        free_ = state->next;
        lock_.unlock();
        state->users = 1;
        return state;
    }
    DDP_UNSEEN static void put(State* state) {
        lock_.lock();
        state->next = free_;
        free_ = state;
        lock_.unlock();
    }

private:
    /// By the system call itself: ThreadSanitizer takes memory of malloc or mmap as written by the thread that asked
    /// for it.
    DDP_UNSEEN static void add_states() {
        constexpr std::size_t kCount = 4096;
        const long memory = ::syscall(SYS_mmap, nullptr, kCount * sizeof(State), PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == -1) throw std::bad_alloc();
        auto* const states = reinterpret_cast<State*>(memory);
        for (std::size_t i = 0; i < kCount; ++i) {
            states[i].next = free_;
            free_ = &states[i];
        }
    }

    static inline constinit UnseenSpinLock lock_;
    static inline constinit State* free_ = nullptr;
};

namespace {

std::atomic_ref<std::uint32_t> seen(std::uint32_t& word) { return std::atomic_ref<std::uint32_t>(word); }

}  // namespace

Completion Completion::pending() {
    Completion completion;
    completion.state_ = CompletionPool::take();
    seen(completion.state_->completed).store(0, std::memory_order_relaxed);
    return completion;
}

void Completion::give_back(State* state) {
    if (unseen_add(state->users, -1) == 0) CompletionPool::put(state);
}

void Completion::complete() const {
    // A store, not an addition: what an earlier user of the state has released to it is forgotten.
    seen(state_->completed).store(1, std::memory_order_release);
    futex_wake_all(&state_->completed);
}

bool Completion::completed() const {
    if (state_ == nullptr) return true;
    // An acquiring load of 0 would order this thread behind an earlier use of the state.
    return seen(state_->completed).load(std::memory_order_relaxed) != 0 &&
           seen(state_->completed).load(std::memory_order_acquire) != 0;
}

void Completion::wait() const {
    while (!completed()) futex_wait(&state_->completed, 0);
}

void Completion::wait_unseen() const {
    while (!completed_unseen()) futex_wait(&state_->completed, 0);
}

}  // namespace ddp::fake
