#pragma once
// Synchronisation that ThreadSanitizer does not see. The fake's own bookkeeping (its queues, its counts of users)
// orders threads that CUDA does not order; if the sanitizer saw that, it would miss the races between streams which it
// is to find. What CUDA does order is announced by release_to() and acquire_from(), or by an std::atomic.

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstdint>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define DDP_SEES_THREADS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#error "clang instruments atomics also in functions with no_sanitize; build the fake with g++ for ThreadSanitizer"
#endif
#endif
#define DDP_UNSEEN __attribute__((noinline, no_sanitize("thread")))

namespace ddp::fake {

/// What this thread did before release_to(mark) happens before what another one does after acquire_from(mark).
/// Only for the sanitizer: the caller orders the threads by unseen means.
inline void release_to([[maybe_unused]] void* mark) {
#ifdef DDP_SEES_THREADS
    __tsan_release(mark);
#endif
}
inline void acquire_from([[maybe_unused]] void* mark) {
#ifdef DDP_SEES_THREADS
    __tsan_acquire(mark);
#endif
}

// Every access to such a word goes through these functions.
using UnseenWord = std::uint32_t;
DDP_UNSEEN inline UnseenWord unseen_load(const UnseenWord& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }
DDP_UNSEEN inline UnseenWord unseen_add(UnseenWord& word, int by) {
    return __atomic_add_fetch(&word, static_cast<UnseenWord>(by), __ATOMIC_ACQ_REL);
}
template <typename T>
DDP_UNSEEN T* unseen_exchange(T*& pointer, T* value) {
    return __atomic_exchange_n(&pointer, value, __ATOMIC_ACQ_REL);
}

/// Prepends to a list whose nodes have a member `next`.
template <typename Node>
DDP_UNSEEN void unseen_prepend(Node*& list, Node* node) {
    node->next = __atomic_load_n(&list, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&list, &node->next, node, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
    }
}
/// Takes a whole list, and returns it in the order in which its nodes were prepended.
template <typename Node>
DDP_UNSEEN Node* unseen_take_all(Node*& list) {
    Node* taken = __atomic_exchange_n(&list, nullptr, __ATOMIC_ACQUIRE);
    Node* turned = nullptr;
    while (taken != nullptr) {
        Node* const next = taken->next;
        taken->next = turned;
        turned = taken;
        taken = next;
    }
    return turned;
}
template <typename Node>
DDP_UNSEEN Node* unseen_next(const Node& node) {
    return node.next;
}

/// Guards a few instructions.
class UnseenSpinLock {
public:
    DDP_UNSEEN void lock() {
        while (__atomic_exchange_n(&locked_, 1, __ATOMIC_ACQUIRE) != 0) ::sched_yield();
    }
    DDP_UNSEEN void unlock() { __atomic_store_n(&locked_, 0, __ATOMIC_RELEASE); }

private:
    UnseenWord locked_ = 0;
};

/// Sleeps while the word has `value`, or until a wake; may return early. The system call is not seen either.
inline void futex_wait(const void* word, std::uint32_t value) {
    ::syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
inline void futex_wake_all(const void* word) {
    ::syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace ddp::fake
