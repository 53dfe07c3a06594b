#pragma once
// CallbackThread: completes works on a thread of its own, so that a callback that blocks in an NCCL call cannot stop
// the watchdog, the only thread that can end that call. The watchdog owns one if the communicator may block.

#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <thread>

#include "common/mutex.hpp"
#include "worker_lib/src/nccl/work.hpp"

namespace ddp::detail {

/// A work that is over, and its error or none.
struct EndedWork {
    std::shared_ptr<NcclWork> work;
    std::exception_ptr error;
};

class CallbackThread {
public:
    /// `complete` runs on the new thread, once per work, in the order of add(). `on_idle` runs there when nothing is
    /// left to do. Both are called without a lock of this class. Throws Error{System} when there is no thread.
    CallbackThread(std::shared_ptr<GroupDevice> device, std::function<void(const EndedWork&)> complete,
                   std::function<void()> on_idle);
    /// Completes the works that were added, then ends the thread.
    ~CallbackThread();
    CallbackThread(const CallbackThread&) = delete;
    CallbackThread& operator=(const CallbackThread&) = delete;

    void add(EndedWork ended) EXCLUDES(mutex_);
    /// Returns whether no work waits for its completion and no callback runs. Any thread.
    [[nodiscard]] bool is_idle() const EXCLUDES(mutex_);

private:
    void run() EXCLUDES(mutex_);

    const std::shared_ptr<GroupDevice> device_;
    const std::function<void(const EndedWork&)> complete_;
    const std::function<void()> on_idle_;
    mutable ddprun::Mutex mutex_;
    ddprun::Condition changed_;
    std::deque<EndedWork> ended_ GUARDED_BY(mutex_);
    bool in_callback_ GUARDED_BY(mutex_) = false;
    bool stop_ GUARDED_BY(mutex_) = false;
    std::thread thread_;  // last: it uses the above
};

}  // namespace ddp::detail
