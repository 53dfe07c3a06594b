#pragma once
// Stream: a thread that runs tasks in the order in which host threads have pushed them. A task sees what its pusher did
// before the push, and nothing of what that thread, or another stream, did later: the queue is unseen by
// ThreadSanitizer, and each task has a mark of its own. Tasks hold no shared_ptr, whose count would order streams.

#include <atomic>
#include <functional>
#include <vector>

#include "tests/fake_gpu/completion.hpp"
#include "tests/fake_gpu/memory.hpp"

namespace ddp::fake {

class Device;

class Stream {
public:
    enum class Capture { None, Active, Broken };

    /// Starts the thread. A blocking stream waits for the legacy default stream, and it for the stream (Device::push).
    /// Streams are never deleted: their handles must stay checkable. Throws std::system_error.
    Stream(Device& device, bool blocking);
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    /// Returns whether the calling thread is that of a stream.
    [[nodiscard]] static bool runs_this_thread();

    /// Enqueues a task. `memory`: the blocks that it uses.
    void push(std::function<void()> run, std::vector<Block*> memory = {});
    /// Returns the completion of all tasks so far. Does not count as a task: any thread may wait for the device.
    [[nodiscard]] Completion mark();
    /// Holds up later tasks until then.
    void wait_for(Completion completion);
    /// Ends the thread behind the tasks so far. No push may follow.
    void close();

    /// Returns how many tasks have been pushed so far, without marks.
    [[nodiscard]] unsigned tasks() const { return unseen_load(tasks_pushed_); }

    [[nodiscard]] Device& device() const { return device_; }
    [[nodiscard]] bool blocking() const { return blocking_; }
    /// Returns whether `stream` can be a stream, and not anything else.
    [[nodiscard]] bool valid() const { return magic_ == kMagic; }

    // For the driver. Relaxed, so that they order no threads.
    std::atomic<bool> destroyed = false;
    std::atomic<Capture> capture = Capture::None;
    /// Guarded by the device: how many tasks of the default stream this one waits for already.
    std::size_t default_tasks_seen = 0;

private:
    struct Task {
        Task* next = nullptr;
        std::function<void()> run;
        std::vector<Block*> memory;
        bool last = false;
    };
    void push(Task* task);
    void run();
    void run(Task* task);

    static constexpr std::uint64_t kMagic = 0x6d61657274730000;
    const std::uint64_t magic_ = kMagic;
    Device& device_;
    const bool blocking_;
    Task* tasks_ = nullptr;        // unseen; the newest first
    UnseenWord pushes_ = 0;        // unseen; the futex on which the thread sleeps
    UnseenWord tasks_pushed_ = 0;  // unseen
};

}  // namespace ddp::fake
