#pragma once
// BackendImpl: carries out the operations of one group. There are two, the native CPU backend (native/) and NCCL
// (nccl/). The first is the oracle for the second. GroupImpl owns it, checks arguments, numbers the operations and
// submits them. A backend runs them in the order of submit().

#include <cassert>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ddp/process_group.hpp"
#include "ddp/types.hpp"
#include "worker_lib/src/bootstrap/group_spec.hpp"
#include "worker_lib/src/bootstrap/peer_states.hpp"
#include "worker_lib/src/operation/operation.hpp"
#include "worker_lib/src/operation/submission_record.hpp"
#include "worker_lib/src/operation/transfer.hpp"
#include "worker_lib/src/operation/work_state.hpp"

namespace ddp::detail {

class CapturedGraph;
class GroupDevice;

/// A batch of sends and receives that a backend has taken over: it is done, or it is queued and start() has to follow.
class [[nodiscard]] QueuedBatch {
public:
    [[nodiscard]] static QueuedBatch done() { return QueuedBatch(nullptr); }
    explicit QueuedBatch(std::shared_ptr<WorkState> work) : work_(std::move(work)) {}
    QueuedBatch(QueuedBatch&&) noexcept = default;
    QueuedBatch& operator=(QueuedBatch&&) = delete;
    ~QueuedBatch() { assert(work_ == nullptr && "a queued batch is started"); }

    /// Starts the batch. Returns its work; null: it is done. Works may end in the call, and their callbacks may call
    /// the group. So it is called after the lock that submit() was called with has been released.
    [[nodiscard]] std::shared_ptr<WorkState> start() && {
        std::shared_ptr<WorkState> work = std::move(work_);  // taken first: start() may throw
        if (work != nullptr) work->start();
        return work;
    }

private:
    std::shared_ptr<WorkState> work_;
};

class BackendImpl : public PeerStates {
public:
    [[nodiscard]] virtual Backend kind() const = 0;
    /// Makes a backend of the same kind for another group. Collective over spec.members; throws as make_native_backend.
    [[nodiscard]] virtual std::unique_ptr<BackendImpl> make_another(const GroupSpec& spec) const = 0;

    /// Queues the operation, or carries it out at once and returns null. Calls record.write() once for every operation
    /// that it does not refuse, before it waits for a peer. If submit() itself announces the operation to the peers,
    /// write() comes after that. One thread at a time calls submit() and transfer().
    [[nodiscard]] virtual std::shared_ptr<WorkState> submit(Operation&& operation, OperationRecord& record) = 0;
    /// The same for sends and receives. If they are done at once, it also calls record.done_at_once(). On the native
    /// backend they run beside the operations; with NCCL they are steps among them.
    [[nodiscard]] virtual QueuedBatch transfer(TransferList&& batch, TransferRecord& record) = 0;

    /// Returns whether an operation up to number `last` has not ended, as far as the backend knows at once. Any thread.
    [[nodiscard]] virtual bool is_busy(std::uint64_t /*last*/) const { return false; }
    [[nodiscard]] virtual Arena& arena() = 0;
    /// Returns where this process maps the arenas of all ranks, by rank; empty unless all share its node. A number of
    /// bytes from the begin is the same allocation on all of them, if they allocate the same. Their sizes may differ.
    [[nodiscard]] virtual std::vector<std::span<const std::byte>> arenas() const { return {}; }
    /// Returns the CUDA device whose memory the group takes; null: it takes host memory.
    [[nodiscard]] virtual GroupDevice* device() { return nullptr; }
    /// Has `note` called once before an abort makes operations on the device end without a result; at once if that has
    /// happened. It must only write to memory. Backends of host memory never call it.
    virtual void before_abort(std::function<void()> /*note*/) {}
    /// Has operations on this stream become part of the graph into which it is captured, instead of being run, until a
    /// call with a null handle. submit() returns when they are in it. Throws Error{InvalidArgument} if another group of
    /// the device has a graph. As submit(), and never called for a group of host memory.
    virtual void capture_on(Stream /*stream*/) {}
    /// Has the graph freed before the group ends or is aborted.
    virtual void share(const std::shared_ptr<CapturedGraph>& /*graph*/) {}
    /// Fails everything that is queued, here and on the peers. Any thread.
    virtual void abort(std::string_view reason) = 0;
    /// Fails everything that is queued, here and on the peers, with the code and the culprits of `error`. Any thread.
    virtual void fail(const Error& error) { abort(error.what()); }
    /// Has operations in flight fail within 0.2 s when `other` returns an error. An empty `other` ends that; afterwards
    /// the earlier one is not called any more. The default never calls it.
    virtual void fail_with(std::function<std::optional<Error>()> /*other*/) {}
    /// Calls WorkState::after_callbacks() for the group's works: a thread can end the backend only after it has left
    /// their callbacks.
    [[nodiscard]] virtual bool after_callbacks(std::function<void()> end) const = 0;
    /// Returns whether this thread is in a callback of the group's works.
    [[nodiscard]] virtual bool is_in_callback() const = 0;
};

}  // namespace ddp::detail
