#pragma once
// Device: one device with its primary context, which is the CUcontext, and the streams of that. Host threads only.

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "tests/fake_gpu/stream.hpp"

namespace ddp::fake {

/// What the work that this thread enqueues next does first: nothing, take its time, or never end.
struct HeldUp {
    bool for_ever = false;
    std::chrono::milliseconds duration{};
};
/// Holds up the first task that this thread pushes from now on.
void hold_up_next_task(HeldUp how);
/// Forgets that, and returns what no task was pushed for.
std::optional<HeldUp> forget_hold_up();

class Device {
public:
    /// `number`: which device of the machine it is, whatever CUDA_VISIBLE_DEVICES makes of it.
    Device(int ordinal, int number) : ordinal_(ordinal), number_(number) {}

    /// Returns the visible devices of this process, by ordinal (DDP_FAKE_CUDA_DEVICES, CUDA_VISIBLE_DEVICES).
    static const std::vector<std::unique_ptr<Device>>& all();

    [[nodiscard]] int ordinal() const { return ordinal_; }
    [[nodiscard]] int number() const { return number_; }

    void retain();
    /// Returns false if nothing holds the context. The last holder's release destroys the streams, which end their
    /// work.
    bool release();
    [[nodiscard]] bool active() const;

    /// Returns the legacy default stream.
    Stream& default_stream();
    Stream& create_stream(bool blocking);
    void destroy_stream(Stream& stream);
    /// Breaks the captures of the blocking streams, as a use of the default stream does. Returns whether there was one.
    bool break_captures_of_blocking_streams();

    /// Enqueues a task on a stream of this device, in the order of the legacy default stream: a task there waits for
    /// all earlier tasks of the blocking streams, and their later tasks wait for it.
    void push(Stream& stream, std::function<void()> run, std::vector<Block*> memory = {});
    /// Returns the completion of all tasks of a stream so far; itself a task like any other.
    Completion record(Stream& stream);

    /// Waits for all work so far. Unseen by ThreadSanitizer: calls such as cuMemFree do it, but promise no order.
    void wait_for_all_work();

private:
    struct Ended {
        Completion completion;
        bool blocking;
    };
    void destroy(Stream& stream);
    Stream& default_stream_locked();

    const int ordinal_;
    const int number_;
    mutable std::mutex mutex_;
    int holders_ = 0;
    Stream* default_stream_ = nullptr;
    std::vector<Stream*> streams_;    // without the default stream
    std::vector<Ended> ended_;        // of destroyed streams
    std::vector<Stream*> destroyed_;  // kept reachable for LeakSanitizer
    std::size_t default_tasks_ = 0;
    Completion last_default_task_;
};

}  // namespace ddp::fake
