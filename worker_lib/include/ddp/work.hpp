#pragma once
// Work: a handle on an operation in flight.

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "ddp/export.hpp"

namespace ddp::detail {
class WorkState;
}  // namespace ddp::detail

namespace DDP_EXPORT ddp {

/// A handle on an operation in flight. Any thread may wait on it. Copies share one state. A default-constructed Work is
/// done.
class [[nodiscard]] Work {
public:
    Work() = default;  ///< done from the start
    /// Shares the operation of `other`.
    Work(const Work& other);
    /// Takes over the operation of `other`, which is done then.
    Work(Work&& other) noexcept;
    /// Lets go of this operation as the destructor does, and refers to that of `other`.
    Work& operator=(Work other) noexcept;
    /// Does not end the operation: it goes on, and its buffers belong to the library until it has ended. But if
    /// the last handle dies because an exception leaves its block before a wait(), the buffers are about to die too:
    /// then it aborts the group and blocks until no thread uses them, except inside a callback of that group. Peers get
    /// Error{Aborted} with this rank as culprit. Declare buffers before their Work.
    ~Work();

    /// Returns whether the operation has ended, with or without an error.
    [[nodiscard]] bool done() const;
    /// Waits for the result. Host memory: blocks this thread. CUDA: makes the caller's stream wait, not the host.
    /// Throws the operation's ddp::Error.
    void wait();
    /// Blocks this thread until the operation has ended. Without a timeout: until the operation's own deadline;
    /// 0 only looks. Throws Error{Timeout} when it passes, and the operation itself goes on. Throws
    /// Error{InvalidArgument} for a negative timeout.
    void wait_host(std::optional<std::chrono::milliseconds> timeout = {});
    /// Calls `callback` once, with the error or null, when the operation has ended. It runs on the thread that runs the
    /// operation: the group's, or a waiting one. Until it returns, the group does nothing else. If the work is done
    /// already, the callback runs inside then(): it may wait there, and its exceptions reach the caller.
    ///
    /// A callback that the group calls may submit work to the group, but must not wait for it: that throws
    /// Error{InvalidArgument}, unless the work is done. The program has to ensure that all ranks have the same order:
    /// start the next operation either in callbacks or on a thread of yours. A callback must not lock a mutex that a
    /// waiting thread holds: it may run on that thread. Its exception aborts the group with its text, as abort() does.
    /// If it destroys the group, the group ends when the callback has returned. The works in flight then end soon, with
    /// an error; until then their buffers belong to the library.
    void then(std::function<void(std::exception_ptr)> callback);
    /// Returns the number of the operation among the collectives of its group, or of the batch among the group's sends
    /// and receives; both count from 1. 0 for a default-constructed Work.
    [[nodiscard]] std::uint64_t seq() const;

private:
    friend class detail::WorkState;
    explicit Work(std::shared_ptr<detail::WorkState> state);
    explicit Work(std::uint64_t seq) : done_seq_(seq) {}  ///< operation `seq`, done without an error

    std::shared_ptr<detail::WorkState> state_;  ///< null: done
    std::uint64_t done_seq_ = 0;
    int exceptions_ = 0;  ///< how many were passing when the operation was started
};

}  // namespace ddp
