#pragma once
// Groups belong to the process that made them: a child of fork() has their memory and descriptors, but none of their
// threads, and what it does there it does in its parent's name.

#include <atomic>
#include <cstdint>

namespace ddp::detail {

/// The number of forks between the first process that called count_forks() and this one.
extern std::atomic<std::uint32_t> forks;
/// From now on `forks` is right.
void count_forks();

/// Remembers in which process it was made.
class ProcessMark {
public:
    ProcessMark() { count_forks(); }
    [[nodiscard]] bool is_elsewhere() const { return forks.load(std::memory_order_relaxed) != depth_; }

private:
    const std::uint32_t depth_ = forks.load(std::memory_order_relaxed);
};

}  // namespace ddp::detail
