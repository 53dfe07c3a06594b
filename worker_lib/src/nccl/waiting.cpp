#include "worker_lib/src/nccl/waiting.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

namespace ddp::detail {
namespace {

struct Ending {
    std::mutex mutex;
    std::condition_variable changed;
    bool reached = false;
};

}  // namespace

bool run_bounded(std::function<void()> work, ddprun::TimePoint deadline) {
    const auto ending = std::make_shared<Ending>();
    try {
        std::thread([work = std::move(work), ending]() mutable {
            work();
            work = nullptr;  // frees what it owns before the caller goes on
            const std::lock_guard lock(ending->mutex);
            ending->reached = true;
            ending->changed.notify_all();
        }).detach();
    } catch (const std::system_error&) {
        return false;  // without a thread the result is the same as for work that does not return
    }
    std::unique_lock lock(ending->mutex);
    return ending->changed.wait_until(lock, deadline, [&] { return ending->reached; });
}

ddprun::Duration Pauses::next() {
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

void Pauses::pause() {
    if (const auto duration = next(); duration > duration.zero()) {
        std::this_thread::sleep_for(duration);
    } else {
        std::this_thread::yield();
    }
}

}  // namespace ddp::detail
