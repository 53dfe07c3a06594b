#pragma once
// ProcessGroup: the collectives of a set of ranks.
//
// Every rank of a group makes the same calls in the same order, from one thread at a time; the operations run in that
// order, one after another, while the callers go on. Buffers belong to the library until the Work is done. Count 0 is
// legal. Sizes, types and operations are compared across ranks on every call of the native backend: a mismatch is an
// error that names both sides, never a hang. Every wait has a deadline. Results are the same bits on all ranks, and
// from run to run.

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "ddp/error.hpp"
#include "ddp/types.hpp"
#include "ddp/work.hpp"

namespace ddp {

namespace detail {
class GroupImpl;
}

/// Memory in which collectives need no copy: shared by the ranks of a node (memfd). Freed with its group.
class Arena {
public:
    virtual ~Arena() = default;
    /// `bytes` of zeroed memory, aligned to 128. Throws Error{System} when there is no room. Not collective.
    [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;
};

class ProcessGroup {
public:
    explicit ProcessGroup(std::unique_ptr<detail::GroupImpl> impl);
    ProcessGroup(ProcessGroup&&) noexcept;
    ProcessGroup& operator=(ProcessGroup&&) noexcept;
    /// Waits for nothing: operations in flight fail with Aborted. Peers that still need this rank (native backend) get
    /// Error{PeerLost} at once, with its name and the last operation that it has done.
    ~ProcessGroup();

    [[nodiscard]] int rank() const;
    [[nodiscard]] int size() const;
    [[nodiscard]] const std::string& name() const;
    [[nodiscard]] Backend backend() const;

    /// Every rank ends with the reduction of all ranks' `inout`, in rank order, rounded once for f16 and bf16.
    Work all_reduce(Buffer inout, ReduceOp op, Stream stream = {}, OpOptions options = {});
    /// Every rank ends with root's `inout`.
    Work broadcast(Buffer inout, int root, Stream stream = {}, OpOptions options = {});
    /// Done when every rank has called it.
    Work barrier(OpOptions options = {});

    /// Collective over this group: ranks with equal `color` (>= 0) form a new group, ordered by (key, rank); a negative
    /// color gives nullptr. The new group has queues, connections and shared memory of its own.
    [[nodiscard]] std::unique_ptr<ProcessGroup> split(int color, int key, std::string_view name);

    /// Buffers that this group reduces without a copy. Memory stays valid as long as the group lives.
    [[nodiscard]] Arena& arena();

    /// Fails all work in flight and to come with Error{Aborted}, here at once. Peers of the native backend hear of it
    /// within a moment, with the reason; with NCCL, when they notice. Any thread.
    void abort(std::string_view reason);

private:
    std::unique_ptr<detail::GroupImpl> impl_;
};

}  // namespace ddp
