#pragma once
// CallbackThread: completes works on a thread of its own, so that a callback that blocks in an NCCL call cannot stop
// the watchdog, the only thread that can end that call. The watchdog owns one if the communicator may block.

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

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
    /// left to do. Both are called without a lock of this class. Throws std::system_error when there is no thread.
    CallbackThread(std::shared_ptr<GroupDevice> device, std::function<void(const EndedWork&)> complete,
                   std::function<void()> on_idle);
    /// Completes the works that were added, then ends the thread.
    ~CallbackThread();
    CallbackThread(const CallbackThread&) = delete;
    CallbackThread& operator=(const CallbackThread&) = delete;

    void add(EndedWork ended);
    /// Returns whether no work waits for its completion and no callback runs. Any thread.
    [[nodiscard]] bool is_idle() const;

private:
    void run();

    const std::shared_ptr<GroupDevice> device_;
    const std::function<void(const EndedWork&)> complete_;
    const std::function<void()> on_idle_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<EndedWork> ended_;
    bool in_callback_ = false;
    bool stop_ = false;
    std::thread thread_;  // last: it uses the above
};

}  // namespace ddp::detail
