#include "worker_lib/src/cuda/waiting.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "common/mutex.hpp"
#include "ddp/error.hpp"
#include "worker_lib/src/util/signal_masked_thread.hpp"

namespace ddp::detail {
namespace {

struct Ending {
    ddprun::Mutex mutex;
    ddprun::Condition changed;
    bool reached GUARDED_BY(mutex) = false;
};

}  // namespace

bool run_bounded(std::function<void()> work, ddprun::TimePoint deadline) {
    const auto ending = std::make_shared<Ending>();
    try {
        start_signal_masked_thread("ddp-bounded", [work = std::move(work), ending]() mutable {
            work();
            work = nullptr;  // frees what it owns before the caller goes on
            const ddprun::Lock lock(ending->mutex);
            ending->reached = true;
            ending->changed.notify_all();
        }).detach();
    } catch (const Error&) {
        return false;  // without a thread the result is the same as for work that does not return
    }
    const ddprun::Lock lock(ending->mutex);
    while (!ending->reached) {
        if (!ending->changed.wait_until(ending->mutex, deadline)) break;
    }
    return ending->reached;
}

ddprun::Duration Backoff::next() {
    constexpr int kYields = 100;  // about the time of a small collective on an idle machine
    constexpr auto kShortest = std::chrono::microseconds(20);
    constexpr auto kLongest = std::chrono::microseconds(1000);
    if (count_ < kYields) {
        ++count_;
        return ddprun::Duration::zero();
    }
    const int doublings = std::min(count_ - kYields, 6);
    if (doublings < 6) ++count_;
    return std::min<ddprun::Duration>(kShortest * (1 << doublings), kLongest);
}

void Backoff::pause() {
    if (const auto duration = next(); duration > duration.zero()) {
        std::this_thread::sleep_for(duration);
    } else {
        std::this_thread::yield();
    }
}

}  // namespace ddp::detail
