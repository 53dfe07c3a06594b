#pragma once
// CallbackThread: runs the callbacks of a group's works on a thread of its own, so that a callback that takes long
// delays no launch, no deadline and no other group. The group owns it.

#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "common/mutex.hpp"
#include "worker_lib/src/nccl/work.hpp"

namespace ddp::detail {

/// A work that has ended, and its callbacks, which have not run.
struct EndedWork {
    std::shared_ptr<NcclWork> work;
    std::vector<WorkState::Callback> callbacks;
};

class CallbackThread {
public:
    /// `run` is called on the new thread, once per work, in the order of add(). `on_idle` is called there when nothing
    /// is left to do. Both are called without a lock of this class. Throws Error{System} when there is no thread.
    CallbackThread(std::shared_ptr<GroupDevice> device, std::function<void(const EndedWork&)> run,
                   std::function<void()> on_idle);
    /// Runs the callbacks that were added, then ends the thread.
    ~CallbackThread();
    CallbackThread(const CallbackThread&) = delete;
    CallbackThread& operator=(const CallbackThread&) = delete;

    void add(EndedWork ended) EXCLUDES(mutex_);
    /// Returns whether no callback waits or runs. Any thread.
    [[nodiscard]] bool is_idle() const EXCLUDES(mutex_);

private:
    void run_all() EXCLUDES(mutex_);

    const std::shared_ptr<GroupDevice> device_;
    const std::function<void(const EndedWork&)> run_;
    const std::function<void()> on_idle_;
    mutable ddprun::Mutex mutex_;
    ddprun::Condition changed_;
    std::deque<EndedWork> ended_ GUARDED_BY(mutex_);
    bool in_callback_ GUARDED_BY(mutex_) = false;
    bool stop_ GUARDED_BY(mutex_) = false;
    std::thread thread_;  // last: it uses the above
};

}  // namespace ddp::detail
