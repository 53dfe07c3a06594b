#pragma once
// Communicator: one rank of a fake communicator. Its data goes over a group of the native backend. Each launch is one
// task on a stream, which blocks that stream until the peers have done their part, as a kernel does.
//
// Errors of that group are not errors of NCCL, which notices a dead or different peer on the same machine only by
// chance: the task waits until the communicator is aborted. Objects are never freed, so that a call on one that has
// ended is found, and tasks need no reference count, which would order streams.

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.hpp"
#include "common/mutex.hpp"
#include "ddp/process_group.hpp"
#include "tests/fake_gpu/nccl/call.hpp"
#include "tests/fake_gpu/nccl/checks.hpp"
#include "tests/fake_gpu/nccl/meeting.hpp"

namespace ddp::fake_nccl {

class Communicator {
public:
    Communicator(Meeting meeting, int rank, int ranks, int device, bool blocking);
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;

    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int ranks() const { return ranks_; }
    [[nodiscard]] int device() const { return device_; }
    [[nodiscard]] bool blocking() const { return blocking_; }
    /// Returns "rank 1 of communicator 5f0c12ab".
    [[nodiscard]] const std::string& text() const { return text_; }

    /// The functions of nccl.h, on one thread at a time.
    [[nodiscard]] ncclResult_t init();
    /// The same, but the other ranks never come.
    [[nodiscard]] ncclResult_t init_never();
    [[nodiscard]] ncclResult_t async_error() EXCLUDES(mutex_);
    [[nodiscard]] ncclResult_t finalize() EXCLUDES(mutex_);
    [[nodiscard]] ncclResult_t destroy() EXCLUDES(mutex_);
    [[nodiscard]] ncclResult_t abort() EXCLUDES(mutex_);
    /// Checks one call before it is launched. Returns ncclSuccess, or the error with which NCCL refuses it.
    [[nodiscard]] ncclResult_t check(const Call& call) EXCLUDES(mutex_);
    /// Launches the calls of one group of calls.
    [[nodiscard]] ncclResult_t launch(std::vector<Call> calls, CUstream stream) EXCLUDES(mutex_);

    /// Marks this thread as inside while the result lives.
    [[nodiscard]] Visit visit(std::string_view function) { return Visit(inside_, text_, function); }

private:
    enum class State { kConnecting, kReady, kFinalizing, kFinalized, kEnded };
    /// The task on the stream, made by launch().
    struct Task {
        Communicator& communicator;
        ProcessGroup& group;
        std::vector<Call> calls;
        std::uint64_t number;
        std::optional<fake::Fault> fault;
    };
    /// A launch that a non-blocking communicator has not put on the stream yet.
    struct Pending {
        std::unique_ptr<Task> task;  ///< null: the stream is captured
        std::vector<Call> captured;  ///< then
        CUstream stream = nullptr;
        unsigned tasks_before = 0;                       ///< of the stream, when NCCL was called
        std::optional<ddprun::TimePoint> ready_at = {};  ///< nothing: never
    };

    void connect() EXCLUDES(mutex_);
    [[nodiscard]] ncclResult_t connect_result() EXCLUDES(mutex_);
    [[nodiscard]] ncclResult_t put_on_stream(Pending pending) EXCLUDES(mutex_);
    [[nodiscard]] int put_into_graph(std::vector<Call> calls, CUstream stream, const std::vector<const void*>& memory);
    [[nodiscard]] std::unique_ptr<Task> make_task(std::vector<Call> calls) EXCLUDES(mutex_);
    [[nodiscard]] ncclResult_t usable(std::string_view function) EXCLUDES(mutex_);
    [[nodiscard]] ncclResult_t keep(ncclResult_t error) EXCLUDES(mutex_);
    struct InGraph;
    static void run_task(void* argument);
    void run(Task& task);
    void take_part(Task& task);
    void fail(const Error& error);
    void flush(std::uint64_t number) EXCLUDES(mutex_);
    void compare_orders();
    void await_abort() const;
    [[nodiscard]] bool await_turn(std::uint64_t number) EXCLUDES(turn_mutex_);
    void end_turn(std::uint64_t number) EXCLUDES(turn_mutex_);
    [[nodiscard]] bool aborted() const { return aborted_.load(); }

    const Meeting meeting_;
    const int rank_;
    const int ranks_;
    const int device_;
    const bool blocking_;
    const std::string text_;
    std::atomic<pid_t> inside_{0};

    // The side of the host. Tasks must not lock this mutex: that would order them before the host's next poll.
    ddprun::Mutex mutex_;
    State state_ GUARDED_BY(mutex_) = State::kConnecting;
    ncclResult_t error_ GUARDED_BY(mutex_) = ncclSuccess;  ///< the first
    std::unique_ptr<ProcessGroup> group_ GUARDED_BY(mutex_);
    std::optional<Pending> pending_ GUARDED_BY(mutex_);
    std::uint64_t launches_ GUARDED_BY(mutex_) = 0;

    std::atomic<bool> aborted_{false};
    std::atomic<std::uint64_t> tasks_{0};        ///< on streams; the end of the communicator is one, too
    std::atomic<std::uint64_t> graph_calls_{0};  ///< launches that graphs hold: NCCL's persistentRefs
    std::atomic<std::uint64_t> begun_{0};
    std::atomic<std::uint64_t> ended_{0};
    std::atomic<unsigned> device_error_{ncclSuccess};  ///< that NCCL has met in the background

    // The side of the streams: NCCL runs the operations of a communicator in the order of their launch.
    ddprun::Mutex turn_mutex_;
    ddprun::Condition turn_changed_;
    std::uint64_t turn_ GUARDED_BY(turn_mutex_) = 1;
};

}  // namespace ddp::fake_nccl

/// As nccl.h has it: an incomplete type for programs.
struct ncclComm final : ddp::fake_nccl::Communicator {
    using Communicator::Communicator;
};
