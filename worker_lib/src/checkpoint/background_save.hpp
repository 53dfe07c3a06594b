#pragma once
// BackgroundSave: the save_async() of a Checkpointer that is in progress, if any. Every rank has one, with the thread
// that writes this rank's blocks. It owns what saves keep between them: a group for the threads' agreement, which meets
// no collective of the program, and the memory of the copies. One thread calls it.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "ddp/process_group.hpp"
#include "worker_lib/src/util/forks.hpp"

namespace ddp::detail {

class BackgroundSave {
public:
    BackgroundSave() = default;
    /// Waits for the thread, and prints its error, which no call has thrown, on rank 0, and on other ranks
    /// if a peer is lost. In a child of fork(), which has no such
    /// thread, it does nothing.
    ~BackgroundSave();
    BackgroundSave(const BackgroundSave&) = delete;
    BackgroundSave& operator=(const BackgroundSave&) = delete;

    /// Returns the group of the threads, of the same ranks as `group`. Collective: the first call makes it, and the
    /// first one after an error.
    [[nodiscard]] ProcessGroup& group_like(ProcessGroup& group);
    /// Returns memory for a copy. Call it when no save is in progress. Throws Error{System} when there is no room.
    [[nodiscard]] std::span<std::byte> memory(std::size_t bytes);

    /// Notes that `step` is being saved. Call it when none is.
    void begin(std::uint64_t step) { step_ = step; }
    /// Runs `write` on a thread; what it owns is freed there. When no thread can be made, it aborts the group of the
    /// threads and throws Error{System}.
    void start(std::function<void()> write);
    /// Forgets the save that is in progress and returns its step; nothing if there is none.
    [[nodiscard]] std::optional<std::uint64_t> take() { return std::exchange(step_, std::nullopt); }
    /// Waits for the thread, if there is one, and throws its error.
    void finish();
    /// Ends the group of the threads, and with it the save, after an error. All ranks call it.
    void cancel() noexcept;

private:
    struct Result;

    const ProcessMark home_;
    std::unique_ptr<ProcessGroup> group_;  ///< null: none yet
    std::unique_ptr<std::byte[]> memory_;
    std::size_t memory_bytes_ = 0;
    std::optional<std::uint64_t> step_;
    std::shared_ptr<Result> result_;  ///< of the thread; null: none was started
};

}  // namespace ddp::detail
