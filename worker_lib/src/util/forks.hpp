#pragma once
// ProcessMark: shows an object whether it is used in the process that made it. Groups belong to that process: a child
// of fork() has their memory and descriptors, but none of their threads, and would act in its parent's name.

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace ddp::detail {

/// The number of forks between the first process that called count_forks() and this one.
inline std::atomic<std::uint32_t> forks{0};
/// Starts counting, once.
inline void count_forks() {
    [[maybe_unused]] static const int registered =
        ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
}

/// Remembers in which process it was made.
class ProcessMark {
public:
    ProcessMark() { count_forks(); }
    [[nodiscard]] bool is_elsewhere() const { return forks.load(std::memory_order_relaxed) != depth_; }

private:
    const std::uint32_t depth_ = forks.load(std::memory_order_relaxed);
};

}  // namespace ddp::detail
