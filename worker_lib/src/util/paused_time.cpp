#include "worker_lib/src/util/paused_time.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

#include "common/mutex.hpp"

namespace ddp::detail {

namespace {

struct {
    ddprun::Mutex mutex;
    ddprun::TimePoint noted_until GUARDED_BY(mutex);
    std::atomic<ddprun::Duration> sum{};
} paused;

}  // namespace

void note_paused(ddprun::TimePoint began, ddprun::TimePoint ended) {
    const ddprun::Lock lock(paused.mutex);
    const auto before = std::exchange(paused.noted_until, std::max(paused.noted_until, ended));
    if (before < ended) paused.sum = paused.sum.load() + (ended - std::max(before, began));
}

ddprun::Duration paused_time() { return paused.sum.load(std::memory_order_relaxed); }

}  // namespace ddp::detail
