#pragma once
// BackgroundSave: the save_async() of a Checkpointer that is in progress, if any. Every rank has one, so that all know
// that there is a result to wait for; rank 0's has the thread that writes. One thread calls it.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "worker_lib/src/util/forks.hpp"

namespace ddp::detail {

class BackgroundSave {
public:
    BackgroundSave() = default;
    /// Waits for the thread, and prints its error, which no call has thrown. In a child of fork(), which has no such
    /// thread, it does nothing.
    ~BackgroundSave();
    BackgroundSave(const BackgroundSave&) = delete;
    BackgroundSave& operator=(const BackgroundSave&) = delete;

    /// Notes that `step` is being saved. Call it when none is.
    void begin(std::uint64_t step) { step_ = step; }
    /// Runs `write` on a thread; what it owns is freed there. Throws Error{System} when no thread can be made.
    void start(std::function<void()> write);
    /// Forgets the save that is in progress and returns its step; nothing if there is none.
    [[nodiscard]] std::optional<std::uint64_t> take() { return std::exchange(step_, std::nullopt); }
    /// Waits for the thread, if there is one, and throws its error.
    void finish();

private:
    struct Result;

    const ProcessMark home_;
    std::optional<std::uint64_t> step_;
    std::shared_ptr<Result> result_;  ///< of the thread; null: none was started
};

}  // namespace ddp::detail
